"""Finds the tables that the next publication would do something about, cheaply enough to be asked every few seconds.

Imports nothing of the library that commits: who only asks need not load it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from prism_assets.domain.snapshots import FOREIGN, KnownTable, seconds_to_wait, waits_for_a_person
from prism_assets.domain.tables import TableDefinition
from prism_assets.metadata import clock, iceberg_tables
from prism_assets.metadata.iceberg_tables import DirtyDays
from prism_assets.stages.context import StageContext

BEGIN = "begin"
PUBLISH = "publish"
COLUMNS = "columns"
RESTORE = "restore"
COMPARE = "compare"
DROP = "drop"


@dataclass(frozen=True, kw_only=True)
class IcebergWork:
    """One table that the next publication would do something about, and why: at least one of the reasons above.

    begin: the catalog has no such table yet; publish: days changed since the last commit, `days` of them; columns: the
    definition did; restore: somebody else has committed; compare: the catalog was not asked for long; drop: the table
    file names no Iceberg any more. `date` is the newest day that changed, or today.
    """

    table: str
    date: date
    reasons: tuple[str, ...]
    days: int = 0


def published_tables(context: StageContext, names: Collection[str] | None) -> list[TableDefinition]:
    """The tables named, or all, whose files say `iceberg:`, or said so when they were published last."""
    tables = context.choose_with_dropped(names)
    with context.database.begin() as connection:
        begun = iceberg_tables.load_known_tables(connection, [table.table_id for table in tables])
    return [table for table in tables if table.iceberg or table.table_id in begun]


def find_iceberg_work(context: StageContext, *, now: datetime, within_seconds: float = 0.0) -> list[IcebergWork]:
    """All such tables whose next commit may come now, or within so many seconds.

    One at which nothing changes before a person has acted is compared at times and nothing else, so that runs do not
    fail every few seconds for the same reason.
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
    """Why a publication that commits at `commit_time` would do something."""
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
