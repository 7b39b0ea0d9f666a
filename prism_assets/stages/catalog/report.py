"""The result of a catalog run: one value for the terminal, JSON, Dagster and tests."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date

from prism_assets.domain.days.lifecycle import WaitForHistory, WaitForMerge, WaitForObjects, WaitToExpire
from prism_assets.domain.days.partitions import Partition
from prism_assets.domain.problems import Problem
from prism_assets.metadata.leases import Holder, in_brackets
from prism_assets.stages.catalog.column_transitions import TransitionStatus
from prism_assets.stages.catalog.publications import PublishedPartition
from prism_assets.stages.catalog.publish import PublishReport


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """A partition without progress, and the reason."""

    date: date
    reason: str

    @classmethod
    def of(cls, partition: Partition, wait: WaitForHistory | WaitForMerge | WaitForObjects | WaitToExpire) -> Waiting:
        """Returns the reason of a waiting step."""
        return cls(date=partition.date, reason=f"is not {wait.undone}: {wait.reason}")


@dataclass(frozen=True, kw_only=True)
class TableReport:
    """The result of a catalog run for one table.

    Fields of definitions and publications describe Glue's own database; `symlink` has those of the symlink database.
    Problems and waiting days of both stand in this report alone.
    """

    table: str
    table_id: int
    expired: tuple[date, ...] = ()
    withdrawn: tuple[date, ...] = ()
    removed: tuple[str, ...] = ()
    switched: tuple[date, ...] = ()
    marked: tuple[date, ...] = ()
    closed: tuple[date, ...] = ()
    columns_advanced: tuple[str, ...] = ()
    """Steps of columns towards their new names or types."""
    defined: str | None = None
    published: tuple[PublishedPartition, ...] = ()
    waiting: tuple[Waiting, ...] = ()
    open_transitions: tuple[TransitionStatus, ...] = ()
    """The rest of these transitions, and the reason each waits."""
    skipped: bool = False
    """Another run has the table."""
    holder: Holder | None = None
    """The other run, or None if it has just ended."""
    problems: tuple[Problem, ...] = ()
    symlink: PublishReport = field(default_factory=PublishReport)

    @property
    def skip_reason(self) -> str:
        """Why the table was skipped, with the holder."""
        return f"another catalog run is working on it{in_brackets(self.holder)}; nothing was done"

    @property
    def changed(self) -> bool:
        """Whether the run changed anything."""
        moved = self.expired or self.withdrawn or self.switched or self.marked or self.closed or self.columns_advanced
        return bool(moved or self.defined or self.published or self.removed or self.symlink.changed)


@dataclass(frozen=True, kw_only=True)
class CatalogReport:
    """The result of a catalog run for all tables."""

    tables: tuple[TableReport, ...]
    seconds: float

    @property
    def changed(self) -> bool:
        """Whether the run changed anything."""
        return any(table.changed for table in self.tables)

    @property
    def errors(self) -> tuple[str, ...]:
        """Problems and skipped tables, one sentence each."""
        return (*(str(problem) for table in self.tables for problem in table.problems), *self.skipped)

    @property
    def skipped(self) -> tuple[str, ...]:
        """Tables held by another run, one sentence each."""
        return tuple(
            f"{table.table}: {table.skip_reason}; repeat when that has ended" for table in self.tables if table.skipped
        )
