"""Plans, states and reports of erasures: shared by terminal, JSON, Dagster and tests.

None of them contains a predicate. Predicates identify persons, and stand in PostgreSQL alone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from typing import Any

from sqlalchemy import Connection

from prism_assets.domain.erasures.rules import Erasure, ErasureState
from prism_assets.domain.problems import Problem
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.text import counted, listed
from prism_assets.metadata.clock import database_time
from prism_assets.metadata.erasures.erasures import OpenDay, load_erasures, load_open_days
from prism_assets.metadata.leases import Holder
from prism_assets.metadata.tables.drops import load_drops
from prism_assets.stages.context import StageContext


@dataclass(frozen=True, kw_only=True)
class ErasurePlan:
    """The effect of an erasure: matching rows, and objects to rewrite.

    For a join table, rows are records, including those no reader sees.
    """

    table: str
    digest: str
    rows: int
    matching: int
    undecided: int
    """Rows on which the predicate fails."""
    objects: int
    objects_searched: int
    objects_read: int
    bytes_to_write: int
    by_day: Mapping[date, int]
    """Matching rows by day."""
    lines: int
    """Matching quarantined lines."""
    lines_withheld: int
    """Quarantined lines that cannot be judged."""
    objects_unread: int = 0
    """Unreadable objects of records or quarantined lines. The erasure waits for them."""
    open_days: Mapping[date, datetime] = field(default_factory=dict)
    """Open days among `by_day`, with the time from which each may close. Until then readers see the rows."""
    changes: ErasurePlan | None = None
    """The plan for the log of changes of a join table."""
    notes: tuple[str, ...] = ()

    @property
    def all_rows(self) -> int:
        """Rows of the table and its log of changes."""
        return self.rows + (self.changes.all_rows if self.changes else 0)

    @property
    def all_matching(self) -> int:
        """Matching rows of the table and its log of changes."""
        return self.matching + (self.changes.all_matching if self.changes else 0)

    @property
    def all_undecided(self) -> int:
        """Undecided rows of the table and its log of changes."""
        return self.undecided + (self.changes.all_undecided if self.changes else 0)

    @property
    def sentences(self) -> tuple[str, ...]:
        """The plan for people, a line each."""
        days = f" on {counted(len(self.by_day), 'day')}" if self.by_day else ""
        lines = (
            f"; {counted(self.lines, 'quarantined line matches', 'quarantined lines match')}, and "
            f"{self.lines_withheld} cannot be judged"
            if (self.lines or self.lines_withheld)
            else ""
        )
        lines += f"; it fails on {counted(self.undecided, 'row')}, such as by a cast" if self.undecided else ""
        lines += (
            f"; {counted(self.objects_unread, 'object')} cannot be read, and it waits for that"
            if self.objects_unread
            else ""
        )
        return (
            *(
                f"{self.table} {day}: {counted(count, 'row')}{self._waits(day)}"
                for day, count in sorted(self.by_day.items())
            ),
            f"{self.table}: {self.matching:,} of {counted(self.rows, 'row matches', 'rows match')}{days}; "
            f"{self.objects} of {self.objects_searched} "
            f"objects are to be rewritten, {self.bytes_to_write / 1e6:.1f} MB{lines}",
            *(self.changes.sentences if self.changes else ()),
            *(f"{self.table}: {note}" for note in self.notes),
        )

    def _waits(self, day: date) -> str:
        if day not in self.open_days:
            return ""
        return f", erased after the day closes, at {self.open_days[day]:%Y-%m-%d %H:%M}Z or later"


@dataclass(frozen=True, kw_only=True)
class ErasureStatus:
    """The state of an erasure."""

    erasure_id: int
    table: str
    state: str
    digest: str
    create_time: datetime
    objects_rewritten: int
    rows_erased: int
    lines_erased: int
    lines_withheld: int
    proved_time: datetime | None = None
    proof: Mapping[str, Any] | None = None
    """The totals of the proof."""
    waits_for: str | None = None
    """Why the erasure is not proved yet."""
    for_a_person: bool = False
    """The erasure had enough time for its proof. Its obstacle may never disappear by itself."""
    dropped: bool = False
    open_days: tuple[date, ...] = ()
    """Open days with matching rows. Readers see these until the days close."""
    open_until: datetime | None = None
    """The end of the last open day."""
    open_rows: int = 0
    """Matching rows of open days."""
    open_objects: int = 0
    """Objects of open days with matching rows."""

    @classmethod
    def of(
        cls,
        erasure: Erasure,
        table: str,
        *,
        for_a_person: bool = False,
        open_days: Sequence[OpenDay] = (),
        open_until: datetime | None = None,
    ) -> ErasureStatus:
        """Builds the status of a recorded erasure."""
        waits = [erasure.last_error] if erasure.last_error else []
        if open_days:
            waits.append(_close_of(erasure, table, open_days, open_until))
        return cls(
            erasure_id=erasure.erasure_id,
            table=table,
            state=erasure.state.value,
            digest=erasure.digest,
            create_time=erasure.create_time,
            objects_rewritten=erasure.objects_rewritten,
            rows_erased=erasure.rows_erased,
            lines_erased=erasure.lines_erased,
            lines_withheld=erasure.lines_withheld,
            proved_time=erasure.proved_time,
            proof=erasure.proof,
            waits_for="; and for ".join(waits) or _WAITS.get(erasure.state),
            for_a_person=for_a_person,
            open_days=tuple(item.date for item in open_days),
            open_until=open_until,
            open_rows=erasure.open_rows if open_days else 0,
            open_objects=erasure.open_objects if open_days else 0,
        )

    @property
    def wait(self) -> str:
        """The obstacle of an unproved erasure, as part of a sentence."""
        if self.for_a_person:
            made = f"erasure {self.erasure_id}, made on {self.create_time:%Y-%m-%d},"
            return f"{made} should be proved by now: it is {self.state}, and waits for {self.waits_for}"
        return f"erasure {self.erasure_id} is {self.state} and waits for {self.waits_for}"

    def __str__(self) -> str:
        done = f"{counted(self.rows_erased, 'row')} out of {counted(self.objects_rewritten, 'object')}"
        if self.lines_erased or self.lines_withheld:
            done += f", {counted(self.lines_erased, 'quarantined line')}, and the text of {self.lines_withheld} others"
        table = f"{self.table}, which was dropped," if self.dropped else self.table
        said = f"erasure {self.erasure_id} of {table} is {self.state}: {done}; HMAC {self.digest}"
        if self.proof is None:
            late = "should be proved by now, and " if self.for_a_person else ""
            return f"{said}; {late}waits for {self.waits_for}"
        return f"{said}; {proof_sentence(self.proof)}"


def _close_of(erasure: Erasure, table: str, open_days: Sequence[OpenDay], until: datetime | None) -> str:
    """Returns the wait of an erasure for the close of open days."""
    days = f"the close of {listed([str(item.date) for item in open_days], _MOST_DAYS)}"
    if all(item.close_early for item in open_days):
        when = ", which was asked for"
    else:
        when = f", at {until:%Y-%m-%d %H:%M}Z or later, or by `prism erase {table} --close-open-days`"
    if not erasure.open_rows:
        return f"{days}{when}"
    rows = counted(erasure.open_rows, "row matches", "rows match")
    return f"{days}{when}: {rows} there, in {counted(erasure.open_objects, 'object')}, and readers see them until then"


_MOST_DAYS = 3
_WAITS = {
    ErasureState.REWRITING: "the next `prism run`, `prism erase --continue` or run of `merged`, for the rest",
    ErasureState.PUBLISHING: "catalog runs that send readers to the rewritten objects",
    ErasureState.WAITING: "the end of the reader lease, the deletion of what was rewritten, and the proof",
}


def proof_sentence(proof: Mapping[str, Any]) -> str:
    """Returns a proof as a sentence."""
    waited = proof.get("open_rows", 0)
    open_rows = f"; {counted(waited, 'row')} of open days went after the close of these" if waited else ""
    return (
        f"proved: {counted(proof['objects'], 'object')} with {counted(proof['rows'], 'row')} and "
        f"{counted(proof['lines'], 'quarantined line')} were "
        f"read, and {proof['matches']} match{open_rows}. Staging objects are not of the lake: {proof['sources']} hold "
        f"such rows, and {proof['possible_sources']} more may, which `prism erase --sources` lists for their owner"
    )


@dataclass
class ErasureProgress:
    """The work of one call, and the remaining work. `open_objects` wait for the close of `open_partitions`."""

    objects: int = 0
    rows: int = 0
    marked: int = 0
    redacted: int = 0
    open_objects: int = 0
    open_partitions: set[int] = field(default_factory=set)
    overtaken: int = 0
    problems: list[Problem] = field(default_factory=list)

    @property
    def is_whole(self) -> bool:
        """Whether all work was done."""
        return not (self.overtaken or self.problems)

    @property
    def changed(self) -> bool:
        """Whether any work was done."""
        return bool(self.objects or self.marked or self.redacted)


@dataclass(frozen=True, kw_only=True)
class ErasureReport:
    """The result of one call."""

    erasures: tuple[ErasureStatus, ...] = ()
    problems: tuple[Problem, ...] = ()
    holders: Mapping[str, Holder | None] = field(default_factory=dict)
    """Runs that hold tables left out by this call."""
    changed: bool = False
    """Any work was done. A search without a result is none."""
    seconds: float = 0.0
    other_errors: tuple[str, ...] = ()
    """Errors of the stages that close open days."""

    def only(self, erasures: Sequence[ErasureStatus]) -> ErasureReport:
        """Returns the report of some erasures alone.

        If this report has none of them, all are proved and stay as given.
        """
        digests = {item.digest for item in erasures}
        known = tuple(item for item in self.erasures if item.digest in digests)
        return replace(self, erasures=known or tuple(erasures))

    @property
    def errors(self) -> tuple[str, ...]:
        """All errors, one sentence each."""
        return tuple(dict.fromkeys((*map(str, self.problems), *self.other_errors)))

    @property
    def left_for_a_person(self) -> tuple[str, ...]:
        """Erasures that only continue after a person acts, one sentence each."""
        return tuple(f"left for a person: {item.table}: {item.wait}" for item in self.erasures if item.for_a_person)


def read_dropped_erasures(context: StageContext) -> tuple[ErasureStatus, ...]:
    """Returns the erasures of dropped tables with their proofs, the oldest first."""
    with context.database.begin() as connection:
        names = {drop.table_id: str(drop.name) for drop in load_drops(connection)}
        found = load_erasures(connection, list(names))
    return tuple(replace(ErasureStatus.of(item, names[item.table_id]), dropped=True) for item in found)


def read_erasures(
    context: StageContext, tables: Collection[TableDefinition], *, open_only: bool = False
) -> tuple[ErasureStatus, ...]:
    """Returns the present states of tables' erasures, the oldest first."""
    with context.database.begin() as connection:
        found = load_erasures(connection, [table.table_id for table in tables], open_only=open_only)
        return statuses_of(context, connection, tables, found)


def statuses_of(
    context: StageContext, connection: Connection, tables: Collection[TableDefinition], found: Collection[Erasure]
) -> tuple[ErasureStatus, ...]:
    """Returns the present states of these erasures. The clock of PostgreSQL decides which one is overdue."""
    if not found:
        return ()
    known = {table.table_id: table for table in tables}
    time = database_time(connection)
    rewriting = {item.table_id for item in found if item.state is ErasureState.REWRITING}
    open_days = {
        number: days for table_id in rewriting for number, days in load_open_days(connection, table_id).items()
    }
    statuses = []
    for item in found:
        table, days = known[item.table_id], open_days.get(item.erasure_id, [])
        until = max((table.day_ends(day.date) for day in days), default=None)
        late = item.waits_for_a_person(time, _kept(context, table), until)
        statuses.append(ErasureStatus.of(item, str(table.name), for_a_person=late, open_days=days, open_until=until))
    return tuple(statuses)


def _kept(context: StageContext, table: TableDefinition) -> timedelta:
    """Returns how long replaced objects stay, and manifests of an Iceberg table with bounds of erased values."""
    settings = context.settings
    return timedelta(hours=settings.gc_reader_lease_hours + (settings.gc_age_hours if table.iceberg else 0))
