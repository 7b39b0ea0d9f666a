"""What a garbage collection found and did: one value for the terminal, for JSON, for Dagster and for tests."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date

from prism_assets.domain.garbage import Garbage
from prism_assets.domain.problems import Problem
from prism_assets.domain.words import counted
from prism_assets.metadata.leases import Holder, in_brackets
from prism_assets.stages.sums import Summable


@dataclass(frozen=True, kw_only=True)
class Archived:
    """How many staging objects, and merges of the log, left PostgreSQL."""

    objects: int = 0
    merges: int = 0

    def __str__(self) -> str:
        parts = [(self.objects, "staging object"), (self.merges, "merge")]
        return "rows of " + " and ".join(counted(count, what) for count, what in parts if count)


NOTHING_ARCHIVED = Archived()


@dataclass(frozen=True, kw_only=True)
class ObjectSum(Summable):
    """So many objects, with so many bytes together."""

    objects: int = 0
    content_length: int = 0

    @classmethod
    def of(cls, garbage: Collection[Garbage]) -> ObjectSum:
        """All of some garbage."""
        return cls(objects=len(garbage), content_length=sum(item.content_length for item in garbage))

    def __str__(self) -> str:
        return f"{counted(self.objects, 'object')}, {self.content_length / 1e6:.1f} MB"


def by_reason(garbage: Iterable[Garbage]) -> dict[str, ObjectSum]:
    """Garbage by the names of its reasons."""
    found: dict[str, ObjectSum] = {}
    for item in garbage:
        name = item.reason.value
        found[name] = found.get(name, ObjectSum()) + ObjectSum.of([item])
    return dict(sorted(found.items()))


@dataclass(frozen=True, kw_only=True)
class TableGcReport:
    """What was found below the prefix of a table, and what was deleted, by reason; in a dry run, what would be.

    `listed` is everything that lies there. What is garbage and stays is `young`, `held_back` by the largest fraction of
    one run, or `needed` by readers whatever is recorded. `foreign` objects are nobody's here and stay, too, some of
    them named. `planned` are the objects of a dry run. What is recorded of `old_days` leaves PostgreSQL, where staging
    objects are gone: that of so many is `archived`. `skipped` if another run is at the table, its `holder`.
    """

    table: str
    table_id: int
    listed: ObjectSum = ObjectSum()
    deleted: Mapping[str, ObjectSum] = field(default_factory=dict)
    young: ObjectSum = ObjectSum()
    held_back: ObjectSum = ObjectSum()
    needed: ObjectSum = ObjectSum()
    foreign: ObjectSum = ObjectSum()
    foreign_keys: tuple[str, ...] = ()
    planned: tuple[Garbage, ...] = ()
    old_days: tuple[date, ...] = ()
    archived: Archived = NOTHING_ARCHIVED
    skipped: bool = False
    holder: Holder | None = None
    problems: tuple[Problem, ...] = ()

    @property
    def skip_reason(self) -> str:
        """Why a table was skipped, and who has it."""
        return f"another garbage collection is at it{in_brackets(self.holder)}; nothing was done"

    @property
    def sum(self) -> ObjectSum:
        """All that was deleted."""
        return sum(self.deleted.values(), ObjectSum())

    def sentences(self, *, dry_run: bool) -> list[str]:
        """What there is to say, a line each; none if there is nothing."""
        said = []
        if self.deleted:
            reasons = ", ".join(f"{item.objects} {reason}" for reason, item in self.deleted.items())
            said.append(f"{self.sum} of {self.listed} {'to delete' if dry_run else 'deleted'}: {reasons}")
        if self.held_back.objects:
            said.append(f"{self.held_back} more are held back for the next runs, as one run may delete no larger part")
        if self.needed.objects:
            said.append(f"{self.needed} are nobody's by the records, but readers are still sent to them: they stay")
        if self.foreign.objects:
            said.append(f"{self.foreign} are not of prism, and stay: {', '.join(self.foreign_keys)}")
        if dry_run and self.old_days:
            days = counted(len(self.old_days), "day")
            said.append(f"rows of {days} that expired long ago go to the archive where staging objects are gone")
        if self.archived != NOTHING_ARCHIVED:
            said.append(f"{self.archived} went to the archive")
        if self.skipped:
            said.append(self.skip_reason)
        return [f"{self.table}: {sentence}" for sentence in said]


@dataclass(frozen=True, kw_only=True)
class GcReport:
    """What a garbage collection did with all tables."""

    tables: tuple[TableGcReport, ...]
    dry_run: bool
    seconds: float

    @property
    def deleted(self) -> ObjectSum:
        """All that was deleted, or would be."""
        return sum((table.sum for table in self.tables), ObjectSum())

    @property
    def held_back(self) -> ObjectSum:
        """All that the next runs may delete."""
        return sum((table.held_back for table in self.tables), ObjectSum())

    @property
    def foreign(self) -> ObjectSum:
        """All objects that are nobody's here."""
        return sum((table.foreign for table in self.tables), ObjectSum())

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What went wrong, and the tables that another run is at."""
        skipped = (
            Problem(table=table.table, reason=f"{table.skip_reason}; repeat when that has ended", transient=True)
            for table in self.tables
            if table.skipped
        )
        return (*(problem for table in self.tables for problem in table.problems), *skipped)

    @property
    def errors(self) -> tuple[str, ...]:
        """The problems, one sentence each."""
        return tuple(map(str, self.problems))

    @property
    def sentences(self) -> list[str]:
        """What there is to say of the tables, a line each."""
        return [sentence for table in self.tables for sentence in table.sentences(dry_run=self.dry_run)]
