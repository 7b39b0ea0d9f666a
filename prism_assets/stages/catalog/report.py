"""What a catalog run did and found: one value for the terminal, for JSON, for Dagster and for tests."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date

from prism_assets.domain.lifecycle import WaitForMerge, WaitForObjects, WaitToExpire
from prism_assets.domain.partitions import Partition
from prism_assets.domain.problems import Problem
from prism_assets.metadata.leases import Holder, in_brackets
from prism_assets.stages.catalog.column_transitions import TransitionStatus
from prism_assets.stages.catalog.publications import PublishedPartition
from prism_assets.stages.catalog.publish import PublishReport


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """A partition that did not move on, and what it waits for."""

    date: date
    reason: str

    @classmethod
    def of(cls, partition: Partition, wait: WaitForMerge | WaitForObjects | WaitToExpire) -> Waiting:
        """As a step of a plan says it."""
        return cls(date=partition.date, reason=f"is not {wait.undone}: {wait.reason}")


@dataclass(frozen=True, kw_only=True)
class TableReport:
    """What a catalog run did with one table. `skipped` if another run is at it: its `holder`, unless it just ended.

    `columns_advanced` are steps of columns on the way to their new names or types, `open_transitions` say what these
    wait for behind it.

    What was defined, published, withdrawn and removed is that of Glue's own database, and of that of symlinks what
    `symlink` says. What is wrong, and what waits, is that of both, and stands here alone.
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
    defined: str | None = None
    published: tuple[PublishedPartition, ...] = ()
    waiting: tuple[Waiting, ...] = ()
    open_transitions: tuple[TransitionStatus, ...] = ()
    skipped: bool = False
    holder: Holder | None = None
    problems: tuple[Problem, ...] = ()
    symlink: PublishReport = field(default_factory=PublishReport)

    @property
    def skip_reason(self) -> str:
        """Why a table was skipped, and who has it."""
        return f"another catalog run is at it{in_brackets(self.holder)}; nothing was done"

    @property
    def changed(self) -> bool:
        """Whether the run changed anything."""
        moved = self.expired or self.withdrawn or self.switched or self.marked or self.closed or self.columns_advanced
        return bool(moved or self.defined or self.published or self.removed or self.symlink.changed)


@dataclass(frozen=True, kw_only=True)
class CatalogReport:
    """What a catalog run did with all tables."""

    tables: tuple[TableReport, ...]
    seconds: float

    @property
    def changed(self) -> bool:
        """Whether the run changed anything."""
        return any(table.changed for table in self.tables)

    @property
    def errors(self) -> tuple[str, ...]:
        """What went wrong and what was left undone, one sentence each."""
        return (*(str(problem) for table in self.tables for problem in table.problems), *self.skipped)

    @property
    def skipped(self) -> tuple[str, ...]:
        """The tables that another run was at, one sentence each."""
        return tuple(
            f"{table.table}: {table.skip_reason}; repeat when that has ended" for table in self.tables if table.skipped
        )
