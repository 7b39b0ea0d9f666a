"""Statements on prism_materializations: how far partitions have been reported to Dagster."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from sqlalchemy import Connection, Row, text

from prism_assets.domain.tables.accepted import DateRange


@dataclass(frozen=True, kw_only=True)
class Position:
    """How far the assets of a partition have come. Each number only grows; 0 means an asset without work.

    Merges and folds advance the same column of a partition, and no table has both.
    """

    partition_id: int
    live: int = 0
    """The newest small object."""
    merged: int = 0
    """The last merged small object."""
    records: int = 0
    """The last fold that changed the partition."""
    catalog: int = 0
    """The sum of published object, version and revision."""
    iceberg: int = 0
    """The sum of published object, version and revision."""


@dataclass(frozen=True, kw_only=True)
class Unreported:
    """A partition not fully reported to Dagster: its position and the reported one."""

    table_id: int
    date: date
    position: Position
    reported: Position


def load_positions(
    connection: Connection, partitions: Collection[tuple[int, date]]
) -> dict[tuple[int, date], Position]:
    """Returns positions of partitions by table id and date. Leaves out missing ones. Takes no locks."""
    ordered = sorted(partitions)
    keys = {"tables": [table for table, _ in ordered], "dates": [day for _, day in ordered]}
    rows = connection.execute(text(_POSITIONS), keys)
    return {(row.prism_table_id, row.partition_date): _position(row) for row in rows}


_REACHED = """p.prism_table_id, p.partition_date, p.prism_partition_id,
    p.last_object_id AS live, p.desired_manifest_version AS merged, p.desired_manifest_version AS records,
    coalesce(g.published_object_id + g.version + 1 + g.revision, 0) AS catalog,
    coalesce(i.published_object_id + i.version + 1 + i.revision, 0) AS iceberg
"""
_PUBLISHED = """
LEFT JOIN prism_publications g ON g.prism_partition_id = p.prism_partition_id AND g.publisher = 'glue'
LEFT JOIN prism_publications i ON i.prism_partition_id = p.prism_partition_id AND i.publisher = 'iceberg'
"""
_POSITIONS = f"""
SELECT {_REACHED}
FROM unnest(CAST(:tables AS bigint[]), CAST(:dates AS date[])) AS w (table_id, day)
JOIN prism_partitions p ON p.prism_table_id = w.table_id AND p.partition_date = w.day
{_PUBLISHED}
"""


def _position(row: Row[tuple[object, ...]]) -> Position:
    return Position(
        partition_id=row.prism_partition_id,
        live=row.live,
        merged=row.merged,
        records=row.records,
        catalog=row.catalog,
        iceberg=row.iceberg,
    )


def load_unreported(
    connection: Connection, tables: Mapping[str, Collection[int]], days: DateRange, before: int | None, limit: int
) -> list[Unreported]:
    """Returns partitions of some days not fully reported to Dagster. `tables` limits the search by asset. Takes no
    locks.

    Returns the youngest first among those older than partition `before`, then starts over, so that all take turns. It
    scans every partition: 120,000 take a tenth of a second, acceptable for a tick.
    """
    wanted = {name: list(tables.get(name, ())) for name in ("live", "merged", "records", "catalog", "iceberg")}
    rows = connection.execute(
        text(_UNREPORTED), {**wanted, "first": days.first, "last": days.last, "before": before, "limit": limit}
    )
    return [
        Unreported(
            table_id=row.prism_table_id,
            date=row.partition_date,
            position=_position(row),
            reported=Position(
                partition_id=row.prism_partition_id,
                live=row.reported_live,
                merged=row.reported_merged,
                records=row.reported_records,
                catalog=row.reported_catalog,
                iceberg=row.reported_iceberg,
            ),
        )
        for row in rows
    ]


_UNREPORTED = f"""
SELECT * FROM (
    SELECT {_REACHED},
        coalesce(m.live, 0) AS reported_live, coalesce(m.merged, 0) AS reported_merged,
        coalesce(m.records, 0) AS reported_records,
        coalesce(m.catalog, 0) AS reported_catalog, coalesce(m.iceberg, 0) AS reported_iceberg
    FROM prism_partitions p LEFT JOIN prism_materializations m USING (prism_partition_id)
    {_PUBLISHED}
) s
WHERE partition_date BETWEEN :first AND :last AND (live > reported_live AND prism_table_id = ANY(:live)
    OR merged > reported_merged AND prism_table_id = ANY(:merged)
    OR records > reported_records AND prism_table_id = ANY(:records)
    OR catalog > reported_catalog AND prism_table_id = ANY(:catalog)
    OR iceberg > reported_iceberg AND prism_table_id = ANY(:iceberg))
ORDER BY prism_partition_id >= CAST(:before AS bigint), prism_partition_id DESC
LIMIT :limit
"""


def record_reported(connection: Connection, positions: Sequence[Position]) -> None:
    """Records reported positions. Positions only increase, and missing partitions are skipped.

    Locks the rows in id order, and the partitions against deletion, so it waits for commits of Stream and Merge.
    """
    if not positions:
        return
    ordered = sorted(positions, key=lambda position: position.partition_id)
    connection.execute(
        text(_RECORD),
        {
            "ids": [position.partition_id for position in ordered],
            "live": [position.live for position in ordered],
            "merged": [position.merged for position in ordered],
            "records": [position.records for position in ordered],
            "catalog": [position.catalog for position in ordered],
            "iceberg": [position.iceberg for position in ordered],
        },
    )


_RECORD = """
INSERT INTO prism_materializations AS m (prism_partition_id, live, merged, records, catalog, iceberg)
SELECT r.* FROM unnest(CAST(:ids AS bigint[]), CAST(:live AS bigint[]), CAST(:merged AS bigint[]),
    CAST(:records AS bigint[]), CAST(:catalog AS bigint[]), CAST(:iceberg AS bigint[]))
    AS r (id, live, merged, records, catalog, iceberg)
JOIN prism_partitions p ON p.prism_partition_id = r.id ORDER BY r.id
ON CONFLICT (prism_partition_id) DO UPDATE SET live = greatest(m.live, excluded.live),
    merged = greatest(m.merged, excluded.merged), records = greatest(m.records, excluded.records), catalog = greatest(m.catalog, excluded.catalog),
    iceberg = greatest(m.iceberg, excluded.iceberg)
"""
