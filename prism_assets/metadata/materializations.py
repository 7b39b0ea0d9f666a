"""Statements on prism_materializations: how far Dagster was told what partitions hold."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from sqlalchemy import Connection, Row, text

from prism_assets.domain.accepted import DateRange


@dataclass(frozen=True, kw_only=True)
class Position:
    """How far the assets of a partition have come. Each number only grows, and 0 is that of an asset without work.

    `live` is its newest small object, `merged` the one up to which it is merged, `records` the last fold that changed it,
    and `catalog` and `iceberg` the sums of what was published there: object, version, and revision. Merges and folds
    move the same column of a partition, and no table has both.
    """

    partition_id: int
    live: int = 0
    merged: int = 0
    records: int = 0
    catalog: int = 0
    iceberg: int = 0


@dataclass(frozen=True, kw_only=True)
class Unreported:
    """A partition of which Dagster was not told everything: how far it has come, and how far that was told."""

    table_id: int
    date: date
    position: Position
    reported: Position


def load_positions(
    connection: Connection, partitions: Collection[tuple[int, date]]
) -> dict[tuple[int, date], Position]:
    """How far partitions have come, by table id and date; those that do not exist are left out. No locks."""
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
    """Partitions of some days of which Dagster was not told everything; `tables` to look at by asset. Without locks.

    The youngest first that are older than partition `before`, then round again, so that all have their turn. It looks
    at every partition: 120,000 of them take a tenth of a second, which a tick has.
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
    """Records that Dagster was told so much; what was told further stays. Partitions that are not there are left out.

    Locks the rows in the order of their ids, and the partitions they refer to against deletion, which waits for commits
    of Stream and Merge.
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
