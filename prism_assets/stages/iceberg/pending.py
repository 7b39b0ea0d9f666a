"""Finds tables with work for the next publication. Cheap enough for a sensor to ask every few seconds.

Does not import the library that commits, so sensors need not load it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from prism_assets.domain.iceberg.snapshots import FOREIGN, KnownTable, seconds_to_wait, waits_for_a_person
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.metadata import clock
from prism_assets.metadata.iceberg import iceberg_tables
from prism_assets.metadata.iceberg.iceberg_tables import DirtyDays
from prism_assets.stages.context import StageContext

BEGIN = "begin"
PUBLISH = "publish"
COLUMNS = "columns"
RESTORE = "restore"
COMPARE = "compare"
DROP = "drop"


@dataclass(frozen=True, kw_only=True)
class IcebergWork:
    """A table with work for the next publication, and at least one of the reasons above.

    begin: the catalog does not have the table yet; publish: `days` days changed since the last commit; columns: the
    definition changed; restore: somebody else has committed; compare: the last comparison is long ago; drop: the table
    file no longer has `iceberg:`.
    """

    table: str
    date: date
    """The newest changed day, or today."""
    reasons: tuple[str, ...]
    days: int = 0


def published_tables(context: StageContext, names: Collection[str] | None) -> list[TableDefinition]:
    """Returns the named tables, or all, with `iceberg:` in their files, now or at their last publication."""
    tables = context.choose_with_dropped(names)
    with context.database.begin() as connection:
        begun = iceberg_tables.load_known_tables(connection, [table.table_id for table in tables])
    return [table for table in tables if table.iceberg or table.table_id in begun]


def find_iceberg_work(context: StageContext, *, now: datetime, within_seconds: float = 0.0) -> list[IcebergWork]:
    """Returns the tables whose next commit may come now, or within `within_seconds`.

    A table that needs a person is only compared from time to time, so that runs do not fail every few seconds for the
    same reason.
    """
    tables = context.choose_with_dropped(None)
    ids = [table.table_id for table in tables]
    with context.database.begin() as connection:
        known = iceberg_tables.load_known_tables(connection, ids)
        dirty = iceberg_tables.count_dirty_days(connection, list(known)) if known else {}
        time = clock.database_time(connection)
    found = []
    for table in tables:
        of_table, days = known.get(table.table_id), dirty.get(table.table_id)
        commit_time = time + timedelta(seconds=within_seconds)
        compare_seconds = context.settings.catalog_compare_seconds
        reasons = tuple(_reasons(table, of_table, days, time, commit_time, compare_seconds))
        if reasons:
            newest = days.newest if days and PUBLISH in reasons else table.today(now)
            count = days.days if days and PUBLISH in reasons else 0
            found.append(IcebergWork(table=str(table.name), date=newest, reasons=reasons, days=count))
    return found


def _reasons(
    table: TableDefinition,
    known: KnownTable | None,
    dirty: DirtyDays | None,
    time: datetime,
    commit_time: datetime,
    compare_seconds: float,
) -> Iterator[str]:
    """Yields the reasons for a publication that commits at `commit_time`."""
    if table.iceberg is None:
        if known is not None:
            yield DROP
        return
    if known is None:
        yield BEGIN
        return
    compare = known.look_time is not None and (time - known.look_time).total_seconds() >= compare_seconds
    if waits_for_a_person(known, table.iceberg.on_foreign):
        if compare:
            yield COMPARE
        return
    if seconds_to_wait(known, table.iceberg.commit_seconds, commit_time) > 0:
        return
    if known.table_uuid is None:
        yield BEGIN
    if dirty:
        yield PUBLISH
    if known.definition_version < table.version:
        yield COLUMNS
    if known.state == FOREIGN:
        yield RESTORE
    if compare:
        yield COMPARE
