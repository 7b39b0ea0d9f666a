"""What a table file says of how a table is written and shown, beside its columns and streams."""

from __future__ import annotations

from dataclasses import dataclass

ON_FOREIGN = ("restore", "stop")
EVOLVE, REPORT, FREEZE = NEW_FIELDS = ("evolve", "report", "freeze")
EMPTY, SET_ASIDE = MISFITS = ("empty", "quarantine")


@dataclass(frozen=True, kw_only=True)
class Rejection:
    """Lines for which the SQL expression `when` is true are set aside for this reason."""

    when: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class MergePolicy:
    """When and how big merged objects are cut. Sizes are bytes of Parquet, the interval is seconds."""

    interval: int = 3600
    target_bytes: int = 128 * 1024 * 1024
    max_objects: int = 2000
    sort_by: tuple[str, ...] = ()

    @property
    def floor_bytes(self) -> int:
        """The least size of a merged object that is not the last of its partition."""
        return self.target_bytes // 2


@dataclass(frozen=True, kw_only=True)
class IcebergOptions:
    """How a table is published as an Iceberg table, too.

    There is a commit at most every `commit_seconds`. Snapshots of the last `keep_hours` stay, and tags of the last
    `daily_tags` days. `metrics` are the columns whose metrics are recorded, or none for those that rows are sorted by.
    `on_foreign` says what follows on commits of others: `restore` takes them back, `stop` waits for a person.
    """

    commit_seconds: int = 60
    keep_hours: int = 4
    daily_tags: int = 0
    metrics: tuple[str, ...] = ()
    on_foreign: str = "restore"


@dataclass(frozen=True, kw_only=True)
class Contract:
    """What follows where lines have fields that no column reads, and values that do not fit their column.

    `new_fields` become columns (`evolve`), are counted (`report`), or set their lines aside (`freeze`). `misfits` are
    null or cut (`empty`), or set their lines aside (`quarantine`). No field becomes a column of a table that has
    `most_columns` already.
    """

    new_fields: str = REPORT
    misfits: str = EMPTY
    most_columns: int = 256


@dataclass(frozen=True, kw_only=True)
class ChangeLog:
    """What a table says that logs the changes of a join table.

    A change is too late if its event time and `lateness_seconds` lie before the settle clock; none is for None.
    """

    lateness_seconds: int | None
