"""Random histories of a join table: events, deliveries, slow claims, a watermark, and folds.

Everything depends on a seed. Objects are sent at a time, found by a discovery with outages, claimed by the clock of
that moment, which decides on accepted changes, and committed some time later. Some come twice, with an effect only on
sums and counts. A fold takes some or all committed objects.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

from prism_assets.domain.records.folding import RecordPart, UnfoldedChanges
from prism_assets.domain.records.joins import DELETE, SETTLE, JoinOptions, PublishPolicy
from prism_assets.domain.records.model import Change, Record
from prism_assets_tests.kernels.builders import Lake
from prism_assets_tests.kernels.records.builders import (
    BACK,
    COUNTED,
    FRONT,
    LATENESS,
    START,
    START_MS,
    WINDOW,
    FoldedTable,
    a_change,
    a_join,
    a_join_table,
    a_model,
    as_rows,
)

MARGIN = 60
"""Seconds: a discovery knows all objects sent this long before."""


@dataclass
class Sent:
    """One staging object: the time it was sent, and its progress. Times are seconds after START."""

    number: int
    sent: float
    changes: list[Change]
    claimed: float | None = None
    clock_at_claim: float = 0.0
    commits: float = 0.0
    stored: UnfoldedChanges | None = None


@dataclass(frozen=True)
class Clocks:
    """The times a fold may know: the watermark, the claim clocks of objects in flight, and now."""

    watermark: float
    claims: tuple[float, ...]
    now: float


SettleRule = Callable[[Clocks], float]


def settle_before(clocks: Clocks) -> float:
    """The rule: no record settles that a claimed, unfolded object might still meet."""
    return min((clocks.watermark, *clocks.claims))


def clock_alone(clocks: Clocks) -> float:
    """The naive rule without objects in flight."""
    return clocks.watermark


def now_alone(clocks: Clocks) -> float:
    """The naive rule with time advancing while discovery is down."""
    return clocks.now - MARGIN


@dataclass(frozen=True)
class Rebuilds:
    """Rebuilds after folds, and the forgotten facts: when records settled, or their days."""

    forgets_clock: bool = False
    forgets_days: bool = False


@dataclass
class History:
    """One history, with the expected content of its table."""

    seed: int
    table: FoldedTable
    rule: SettleRule = settle_before
    rebuilds: Rebuilds | None = None
    begins: float = 0.0
    taken: list[Change] = field(default_factory=list)
    folded: dict[tuple[int, int], Change] = field(default_factory=dict)
    settled_before: float = float("-inf")
    late: int = 0
    checks: int = 0
    compared: int = 0
    rebuilt: int = 0
    differs: bool = False

    def __post_init__(self) -> None:
        self._definition = self.table.table

    def folds_with(self, join: JoinOptions) -> None:
        """Lets folds go by other options than the table has."""
        self.table.table = a_join_table(join)

    def run(self) -> None:
        """Plays the history. After each fold it `differs` if readers see anything but the expected records."""
        chance = random.Random(self.seed)
        objects = [an_object(chance, number, self.begins) for number in range(chance.randint(2, 9))]
        objects += [
            replace(item, sent=item.sent + chance.choice([0, 100, 5_000]))
            for item in objects
            if one_in(chance, 6) and item.changes[0].group != "counted"
        ]
        self._live(chance, objects)

    def _live(self, chance: random.Random, objects: list[Sent]) -> None:
        now, clock, discovered = 0.0, float("-inf"), float("-inf")
        end = max(item.sent for item in objects) + 3 * MARGIN
        while now < end or any(item.stored is None for item in objects):
            now += chance.choice([20, 60, 200, 900])
            if not one_in(chance, 3) or now > end:
                discovered = now
            known = [item for item in objects if item.sent <= discovered]
            waiting = [item for item in known if item.stored is None]
            clock = max(clock, min([discovered - MARGIN, *(item.sent for item in waiting)]))
            for item in waiting:
                if item.claimed is None and one_in(chance, 2):
                    item.claimed, item.clock_at_claim = now, clock
                    item.commits = now + chance.choice([0, 100, 2_000])
            for item in known:
                if item.claimed is not None and item.stored is None and item.commits <= now:
                    self._commit(item)
            if one_in(chance, 2):
                self._fold(chance, objects, clock, now)
        self._fold(chance, objects, clock, now + 10 * 3_600, everything=True)

    def _commit(self, item: Sent) -> None:
        clock = item.clock_at_claim * 1_000
        in_time = [one for one in item.changes if one.time - START_MS + LATENESS * 1_000 >= clock]
        self.late += len(item.changes) - len(in_time)
        item.changes = in_time
        item.stored = self.table.commit(in_time, START + timedelta(seconds=item.commits))

    def _fold(
        self, chance: random.Random, objects: list[Sent], clock: float, now: float, *, everything: bool = False
    ) -> None:
        ready = [item for item in objects if item.stored is not None and item.number >= 0]
        taken = ready if everything or one_in(chance, 2) else chance.sample(ready, chance.randint(0, len(ready)))
        flying = [item for item in objects if item.claimed is not None and item.number >= 0 and item not in taken]
        may_settle = self.rule(Clocks(clock, tuple(item.clock_at_claim for item in flying), now))
        stored = [item.stored for item in taken if item.stored is not None]
        chance.shuffle(stored)
        count = 1 if self.table.table.join and self.table.table.join.buckets == 1 else chance.choice([1, 2])
        instant = None if may_settle == float("-inf") else START + timedelta(seconds=may_settle)
        self.table.fold(stored, START + timedelta(seconds=now), instant, count)
        self.settled_before = max(self.settled_before, may_settle)
        for item in taken:
            item.number = -1
            self.taken += item.changes
        waiting = self.table.waiting()
        self.folded |= {one.identity: one for one in self.taken if one.identity not in waiting}
        self.checks += 1
        self.differs |= self.table.seen() != self.expected or (everything and bool(self.table.of(RecordPart.PENDING)))
        if self.rebuilds is not None:
            self._rebuild(self.rebuilds, now)

    def _rebuild(self, how: Rebuilds, now: float) -> None:
        """Compares, and writes all days anew in every other case: readers see the same, and under the same days."""
        chance = random.Random(f"{self.seed} {now}")
        clock = None if how.forgets_clock or self.settled_before == float("-inf") else self.settled_before
        instant = None if clock is None else START + timedelta(seconds=clock)
        tasks, different = self.table.compare(instant, slices=chance.choice([1, 4]), forget_days=how.forgets_days)
        if not self.table.of(RecordPart.PENDING):
            self.differs |= bool(different)
            self.compared += 1
        if one_in(chance, 2):
            before = self._days()
            self.table.rebuild(tasks, {item.date for item in self.table.objects.values()} | different.keys())
            self.folded = {one.identity: one for one in self.taken}
            self.differs |= self.table.seen() != self.expected or any(
                day != before[place] for place, day in self._days().items() if place in before
            )
            self.rebuilt += 1

    def _days(self) -> dict[tuple[Any, ...], date]:
        """Returns the day of every record for readers, by key and first event."""
        return {
            (row["id"], row["shard"], row["time"]): item.date
            for item in self.table.of(RecordPart.VISIBLE)
            for row in self.table.rows(item)
        }

    @property
    def expected(self) -> list[dict[str, Any]]:
        """Returns the records readers should see: all folded ones, except deleted ones.

        A record is deleted by the time of its last event, including waiting changes.
        """
        join = self._definition.join
        assert join is not None
        model, clock = a_model(self._definition), START_MS + self.settled_before * 1_000
        whole = model.records_of(self.taken)

        def is_there(record: Record) -> bool:
            (later,) = [one for one in whole if one.key == record.key and spans(one, record)]
            settles = model.settles_at(later)
            return join.after != DELETE or settles is None or settles >= clock

        return as_rows(model.records_of(self.folded.values()), is_there)


def spans(record: Record, part: Record) -> bool:
    return record.first_event <= part.first_event <= record.last_event


def a_history(lake: Lake, seed: int, *, rule: SettleRule = settle_before, **more: Any) -> History:
    """Returns a history to be played, of a table whose options also depend on the seed."""
    return History(seed, FoldedTable(lake, a_join_table(random_join(random.Random(-seed), **more))), rule)


def random_join(chance: random.Random, **more: Any) -> JoinOptions:
    window = chance.choice([None, WINDOW, WINDOW, WINDOW])
    owner = chance.choice([None, "front", "back"])
    settings: dict[str, Any] = {
        "window_seconds": window,
        "after": SETTLE if window is None else chance.choice([SETTLE, DELETE]),
        "groups": tuple(replace(group, owner=group.name == owner) for group in (FRONT, BACK, COUNTED)),
        "buckets": chance.choice([1, 2, 4]),
        "publish": PublishPolicy(every_seconds=60, dirty=chance.choice([0.1, 0.5, 1.0]), stale_seconds=3_600),
    }
    return a_join(**{**settings, **more})


def an_object(chance: random.Random, number: int, begins: float) -> Sent:
    """Returns changes of one group, sent together: most soon after their events, few beyond the lateness."""
    group = chance.choice(["front", "back", "counted"])
    sent = begins + chance.uniform(0, 4 * WINDOW)
    changes = []
    for line in range(chance.randint(1, 5)):
        delay = chance.choice([-20, 0, 5, 60, LATENESS - 1, LATENESS + 1, 2_000]) + chance.random()
        key = {"id": chance.choice(["a", "b", "ä" * 9]), "shard": chance.choice([1, 1, 2])}
        changes.append(a_change(group, (number, line), round(sent - delay, 3), **key, **values(chance, group)))
    return Sent(number, sent, changes)


def values(chance: random.Random, group: str) -> dict[str, Any]:
    """Returns the values of a group's change. Any may be null, and sequences may tie."""
    match group:
        case "front":
            said: dict[str, Any] = {"page": chance.choice("xyz"), "note": chance.choice("pq")}
        case "back":
            said = {"version": chance.randint(0, 3), "part": chance.choice("mn"), "state": chance.choice("uv")}
            said["price"] = Decimal(chance.randint(-9, 9)).scaleb(-2).quantize(Decimal("0.01"))
        case _:
            said = {"tick": chance.randint(0, 3), "total": chance.choice([-7, 5, 2**62]), "hits": 1}
            said |= {"low": chance.randint(-3, 3), "high": chance.randint(0, 3), "origin": chance.choice("st")}
            said["small"] = chance.choice([1, -30_000, 30_000])
    some = {name: None if one_in(chance, 5) else value for name, value in said.items()}
    return {**some, "deleted": group != "counted" and one_in(chance, 4)}


def one_in(chance: random.Random, number: int) -> bool:
    return chance.randrange(number) == 0
