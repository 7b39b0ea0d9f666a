"""Options in a table file for writing and showing a table."""

from __future__ import annotations

from dataclasses import dataclass

ON_FOREIGN = ("restore", "stop")
EVOLVE, REPORT, FREEZE = NEW_FIELDS = ("evolve", "report", "freeze")
EMPTY, SET_ASIDE = MISFITS = ("empty", "quarantine")


@dataclass(frozen=True, kw_only=True)
class Rejection:
    """Lines for which the SQL expression `when` is true are quarantined with this reason."""

    when: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class MergePolicy:
    """When and how big merged objects are cut. Sizes are bytes of Parquet, the interval is in seconds."""

    interval: int = 3600
    target_bytes: int = 128 * 1024 * 1024
    max_objects: int = 2000
    sort_by: tuple[str, ...] = ()

    @property
    def floor_bytes(self) -> int:
        """The least size of a merged object, except the last of its partition."""
        return self.target_bytes // 2


@dataclass(frozen=True, kw_only=True)
class IcebergOptions:
    """How a table is published as an Iceberg table."""

    commit_seconds: int = 60
    """The least time between two commits."""
    keep_hours: int = 4
    """How long snapshots are retained."""
    daily_tags: int = 0
    """How many days keep a tag."""
    metrics: tuple[str, ...] = ()
    """Columns with recorded metrics. Empty: the sort columns."""
    on_foreign: str = "restore"
    """After a foreign commit, `restore` undoes it and `stop` waits for a person."""


@dataclass(frozen=True, kw_only=True)
class Contract:
    """How to handle fields without a column, and values that do not fit."""

    new_fields: str = REPORT
    """`evolve` makes columns of them, `report` counts them, `freeze` quarantines their lines."""
    misfits: str = EMPTY
    """`empty` stores null or cuts the value, `quarantine` quarantines its line."""
    most_columns: int = 256
    """A table with this many columns gets no further ones from fields."""


@dataclass(frozen=True, kw_only=True)
class ChangeLog:
    """Options of a log of changes of a join table."""

    lateness_seconds: int | None
    """A change is too late if its event time plus this lies before the watermark. None: never."""
