"""The plan and the progress of drops: one value for the terminal, JSON, Dagster and tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from prism_assets.domain.problems import Problem
from prism_assets.domain.tables.drops import Drop, DropState
from prism_assets.domain.text import counted
from prism_assets.metadata.tables.drops import RecordedRows
from prism_assets.stages.gc.report import ObjectSum


@dataclass(frozen=True, kw_only=True)
class DropPlan:
    """The parts of a table that a drop removes."""

    table: str
    catalogs: tuple[str, ...]
    """Names shown in catalogs."""
    folder: str
    objects: Mapping[str, ObjectSum]
    """Objects by folder."""
    rows: RecordedRows
    never_read: bool = False
    """No reader ever saw it, so the drop needs no wait."""
    obstacles: tuple[str, ...] = ()
    """Why it cannot be dropped yet."""

    @property
    def sum(self) -> ObjectSum:
        """All objects in its folder."""
        return sum(self.objects.values(), ObjectSum())

    @property
    def sentences(self) -> tuple[str, ...]:
        """The plan, a line each, in order of execution."""
        rows = self.rows
        return (
            *(f"{self.table}: taken out of {catalog}" for catalog in self.catalogs),
            *(f"{self.table}: {count} in {self.folder}{name}" for name, count in sorted(self.objects.items())),
            f"{self.table}: what is recorded of {counted(rows.days, 'day')}, {rows.small_objects:,} small and "
            f"{counted(rows.merged_objects, 'merged object')}; "
            + counted(
                rows.staging_objects,
                "staging object is forgotten, and stays where it is",
                "staging objects are forgotten, and stay where they are",
            ),
            *([self._erased] if rows.erasures else ()),
        )

    @property
    def _erased(self) -> str:
        rows = self.rows
        return (
            f"{self.table}: {counted(rows.erasures, 'erasure')}, whose proofs stay, but which bind no table that reads "
            f"the same staging objects: {rows.erased_sources:,} of these hold their rows, or may; "
            "`prism erase --sources` lists them as long as the table is there"
        )


@dataclass(frozen=True, kw_only=True)
class DropStatus:
    """The progress of a drop."""

    table: str
    table_id: int
    state: str
    objects: ObjectSum
    begin_time: datetime
    end_time: datetime | None = None
    lease_ends: datetime | None = None
    """The end of the reader lease; objects are deleted afterwards."""
    left: ObjectSum | None = None
    """Objects still in its folder, as far as this call has seen."""
    never_read: bool = False

    @classmethod
    def of(cls, drop: Drop, lease_hours: float, left: ObjectSum | None = None) -> DropStatus:
        """Returns the status of a recorded drop."""
        return cls(
            table=str(drop.name),
            table_id=drop.table_id,
            state=drop.state.value,
            objects=ObjectSum(objects=drop.objects, content_length=drop.content_length),
            begin_time=drop.begin_time,
            end_time=drop.end_time,
            lease_ends=drop.lease_ends(lease_hours),
            left=left,
            never_read=drop.never_read,
        )

    @property
    def is_over(self) -> bool:
        """Whether the table is gone entirely."""
        return self.state == DropState.DROPPED.value

    @property
    def waits_for(self) -> str | None:
        """The next step. None if it is over."""
        match DropState(self.state):
            case DropState.HIDING:
                return "catalogs that still show it, or may: the next `prism gc` asks again"
            case DropState.DELETING:
                left = f", {self.left} are left" if self.left else ""
                if self.never_read:
                    return f"the next `prism gc`, which deletes {self.objects}{left}"
                return f"`prism gc`, which deletes {self.objects} from {self.lease_ends:%Y-%m-%d %H:%M}Z on{left}"
            case DropState.FORGETTING:
                return "the next `prism gc`, which forgets what is recorded of it"
            case DropState.DROPPED:
                return None

    def __str__(self) -> str:
        if self.end_time is not None:
            return f"{self.table} was dropped at {self.end_time:%Y-%m-%d %H:%M}Z, with {self.objects}"
        return f"{self.table} is being dropped since {self.begin_time:%Y-%m-%d %H:%M}Z; waits for {self.waits_for}"


@dataclass(frozen=True, kw_only=True)
class DropReport:
    """The result of a call for drops."""

    drops: tuple[DropStatus, ...] = ()
    deleted: ObjectSum = field(default_factory=ObjectSum)
    foreign: tuple[str, ...] = ()
    """Keys of some objects of unknown origin. They stay in the folders."""
    problems: tuple[Problem, ...] = ()
    changed: bool = False

    @property
    def errors(self) -> tuple[str, ...]:
        """The problems, one sentence each."""
        return tuple(map(str, self.problems))

    @property
    def sentences(self) -> tuple[str, ...]:
        """The result, a line each. Empty without a drop."""
        foreign = [f"not of prism, and stays: {key}" for key in self.foreign]
        return (*map(str, self.drops), *foreign)
