"""Reports the content, the delay and the health of each Iceberg table."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import date

from prism_assets.domain.errors import PrismError
from prism_assets.domain.iceberg.commit import IcebergCommit
from prism_assets.domain.iceberg.health import Health, IcebergFigures, health_of
from prism_assets.domain.iceberg.snapshots import KnownTable, commit_seconds
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.metadata.iceberg import iceberg_figures, iceberg_tables
from prism_assets.stages.context import StageContext


@dataclass(frozen=True, kw_only=True)
class IcebergStatus:
    """The status of one table."""

    table: str
    identifier: str
    known: KnownTable | None
    """The record of the last publication."""
    left_out: tuple[date, ...]
    """Days not listed as intended without work in progress: their objects have the first file format, or a range is
    wrong.
    """
    seconds_behind: float
    health: Health | None = None
    """None if the catalog does not answer; `error` has the reason."""
    error: str | None = None

    @property
    def state(self) -> str:
        """The state in a word."""
        return self.known.state if self.known else "not published yet"


def read_iceberg_status(context: StageContext, names: Collection[str] | None = None) -> tuple[IcebergStatus, ...]:
    """Returns the status of all Iceberg tables, or of the named ones."""
    return tuple(_status(context, table) for table in context.choose_tables(names) if table.iceberg)


def _status(context: StageContext, table: TableDefinition) -> IcebergStatus:
    with context.database.begin() as connection:
        known = iceberg_tables.load_iceberg_state(connection, table.table_id).known
        waiting = iceberg_figures.waiting_rows(connection, [table.table_id]).get(table.table_id)
        left_out = iceberg_figures.unlisted_days(connection, [table.table_id])
    behind = waiting.seconds if waiting else 0.0
    health, error = None, None
    try:
        health = read_health(context, table, known, behind)
    except PrismError as failed:
        error = str(failed)
    return IcebergStatus(
        table=str(table.name),
        identifier=".".join(context.iceberg.identifier(table)),
        known=known,
        left_out=tuple(item.date for item in left_out),
        seconds_behind=behind,
        health=health,
        error=error,
    )


def read_health(
    context: StageContext, table: TableDefinition, known: KnownTable | None, behind: float
) -> Health | None:
    """Measures a table whose rows wait for `behind` seconds. Asks the catalog. None if it lacks the table."""
    loaded = context.iceberg.load(table)
    if loaded is None or known is None or table.iceberg is None:
        return None
    with context.database.begin() as connection:
        total = iceberg_figures.load_bytes(connection, table.table_id)
    return health_of(
        IcebergFigures(
            closed_small_bytes=total.closed_small_bytes,
            all_bytes=total.all_bytes,
            manifests=len(loaded.manifests),
            days=max(1, len(loaded.day_manifests)),
            snapshots=len(loaded.snapshots),
            metadata_bytes=context.iceberg.metadata_bytes(loaded),
            seconds_behind=behind,
            commit_seconds=commit_seconds(known, table.iceberg.commit_seconds),
            foreign_snapshots=total.foreign_snapshots,
        )
    )


def read_history(context: StageContext, name: str, limit: int) -> list[IcebergCommit]:
    """Returns the latest commits to a table, the latest first."""
    table = context.choose_tables([name])[0]
    with context.database.begin() as connection:
        return iceberg_tables.load_commits(connection, table.table_id, limit)
