"""The result of a garbage collection: one value for the terminal, JSON, Dagster and tests."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date

from prism_assets.domain.files.garbage import Garbage
from prism_assets.domain.problems import Problem
from prism_assets.domain.text import counted
from prism_assets.metadata.leases import Holder, in_brackets
from prism_assets.stages.sums import Summable


@dataclass(frozen=True, kw_only=True)
class Archived:
    """Numbers of staging objects and logged merges that left PostgreSQL."""

    objects: int = 0
    merges: int = 0

    def __str__(self) -> str:
        parts = [(self.objects, "staging object"), (self.merges, "merge")]
        return "rows of " + " and ".join(counted(count, what) for count, what in parts if count)


NOTHING_ARCHIVED = Archived()


@dataclass(frozen=True, kw_only=True)
class ObjectSum(Summable):
    """A number of objects and their total bytes."""

    objects: int = 0
    content_length: int = 0

    @classmethod
    def of(cls, garbage: Collection[Garbage]) -> ObjectSum:
        """Sums up garbage."""
        return cls(objects=len(garbage), content_length=sum(item.content_length for item in garbage))

    def __str__(self) -> str:
        return f"{counted(self.objects, 'object')}, {self.content_length / 1e6:.1f} MB"


def by_reason(garbage: Iterable[Garbage]) -> dict[str, ObjectSum]:
    """Sums up garbage by the names of its reasons."""
    found: dict[str, ObjectSum] = {}
    for item in garbage:
        name = item.reason.value
        found[name] = found.get(name, ObjectSum()) + ObjectSum.of([item])
    return dict(sorted(found.items()))


@dataclass(frozen=True, kw_only=True)
class TableGcReport:
    """Objects found below a table's prefix and deleted, by reason. A dry run has those to delete."""

    table: str
    table_id: int
    listed: ObjectSum = ObjectSum()
    """All objects there."""
    deleted: Mapping[str, ObjectSum] = field(default_factory=dict)
    young: ObjectSum = ObjectSum()
    """Garbage too young to delete."""
    held_back: ObjectSum = ObjectSum()
    """Garbage beyond the largest fraction of one run."""
    needed: ObjectSum = ObjectSum()
    """Garbage by the record, but still needed by readers."""
    foreign: ObjectSum = ObjectSum()
    """Objects of unknown origin. They stay; `foreign_keys` names some."""
    foreign_keys: tuple[str, ...] = ()
    planned: tuple[Garbage, ...] = ()
    """Objects of a dry run."""
    old_days: tuple[date, ...] = ()
    """Expired days whose rows leave PostgreSQL if their staging objects are gone."""
    merged_days: tuple[date, ...] = ()
    """Kept days whose rows of small objects leave PostgreSQL if their staging objects are gone."""
    archived: Archived = NOTHING_ARCHIVED
    skipped: bool = False
    holder: Holder | None = None
    problems: tuple[Problem, ...] = ()

    @property
    def skip_reason(self) -> str:
        """Why the table was skipped, with the holder."""
        return f"another garbage collection is working on it{in_brackets(self.holder)}; nothing was done"

    @property
    def sum(self) -> ObjectSum:
        """All deleted objects."""
        return sum(self.deleted.values(), ObjectSum())

    def sentences(self, *, dry_run: bool) -> list[str]:
        """Returns the results, a line each. Empty without any."""
        lines = []
        if self.deleted:
            reasons = ", ".join(f"{item.objects} {reason}" for reason, item in self.deleted.items())
            lines.append(f"{self.sum} of {self.listed} {'to delete' if dry_run else 'deleted'}: {reasons}")
        if self.held_back.objects:
            lines.append(f"{self.held_back} more are held back for the next runs: PRISM_GC_MAX_FRACTION limits one run")
        if self.needed.objects:
            lines.append(
                f"{self.needed} are unneeded by the records, but catalogs still show them to readers: they stay"
            )
        if self.foreign.objects:
            lines.append(f"{self.foreign} are not of prism, and stay: {', '.join(self.foreign_keys)}")
        for days, end in ((self.old_days, "expired"), (self.merged_days, "merged")) if dry_run else ():
            if days:
                metadata = f"metadata of {counted(len(days), 'day')}, {end} long ago,"
                lines.append(f"{metadata} goes to the archive once their staging objects are gone")
        if self.archived != NOTHING_ARCHIVED:
            lines.append(f"{self.archived} went to the archive")
        if self.skipped:
            lines.append(self.skip_reason)
        return [f"{self.table}: {sentence}" for sentence in lines]


@dataclass(frozen=True, kw_only=True)
class GcReport:
    """The result of a garbage collection for all tables."""

    tables: tuple[TableGcReport, ...]
    dry_run: bool
    seconds: float

    @property
    def deleted(self) -> ObjectSum:
        """All objects deleted, or to delete in a dry run."""
        return sum((table.sum for table in self.tables), ObjectSum())

    @property
    def held_back(self) -> ObjectSum:
        """All objects left to the next runs."""
        return sum((table.held_back for table in self.tables), ObjectSum())

    @property
    def foreign(self) -> ObjectSum:
        """All objects of unknown origin."""
        return sum((table.foreign for table in self.tables), ObjectSum())

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Problems, and tables held by another run."""
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
        """The results of the tables, a line each."""
        return [sentence for table in self.tables for sentence in table.sentences(dry_run=self.dry_run)]
