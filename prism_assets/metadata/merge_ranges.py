"""Statements on prism_merge_ranges. The caller holds the partition's row for every change."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, text

from prism_assets.domain.errors import InvariantBroken, LeaseLost
from prism_assets.domain.merge_plan import MergedRange, MergePlan, PlannedRange
from prism_assets.domain.work import MergeResult


def load_chain(connection: Connection, partition_id: int) -> list[MergedRange]:
    """The ranges of a partition in order, without the sentinel."""
    rows = connection.execute(
        text(
            "SELECT * FROM prism_merge_ranges WHERE prism_partition_id = :id AND lower_bound IS NOT NULL "
            "ORDER BY upper_bound"
        ),
        {"id": partition_id},
    )
    return [_range(row) for row in rows]


def load_table_chains(connection: Connection, table_id: int) -> dict[int, list[MergedRange]]:
    """The ranges of all partitions of a table by partition id, each in order, without sentinels. Without locks."""
    rows = connection.execute(
        text(
            "SELECT r.* FROM prism_merge_ranges r JOIN prism_partitions p USING (prism_partition_id) "
            "WHERE p.prism_table_id = :table AND r.lower_bound IS NOT NULL "
            "ORDER BY r.prism_partition_id, r.upper_bound"
        ),
        {"table": table_id},
    )
    found: dict[int, list[MergedRange]] = {}
    for row in rows:
        found.setdefault(row.prism_partition_id, []).append(_range(row))
    return found


def _range(row: Row[Any]) -> MergedRange:
    return MergedRange(
        lower_bound=row.lower_bound,
        upper_bound=row.upper_bound,
        content_length=row.content_length,
        row_count=row.row_count,
        fingerprint=row.fingerprint,
    )


def observed_shrinkage(connection: Connection, partition_id: int) -> float | None:
    """Merged bytes per byte of the small objects they came from, as far as this partition has ranges."""
    value = connection.execute(
        text(
            "SELECT (SELECT sum(content_length) FROM prism_merge_ranges WHERE prism_partition_id = :id) / "
            "nullif((SELECT sum(content_length) FROM prism_small_objects WHERE prism_partition_id = :id "
            "AND prism_small_object_id <= (SELECT max(upper_bound) FROM prism_merge_ranges "
            "WHERE prism_partition_id = :id)), 0)"
        ),
        {"id": partition_id},
    ).scalar_one()
    return None if value is None or value <= 0 else float(value)


def check_chain_end(connection: Connection, partition_id: int, plan: MergePlan) -> None:
    """LeaseLost if the chain no longer ends where the plan began: somebody else merged meanwhile."""
    end = connection.execute(
        text("SELECT coalesce(max(upper_bound), 0) FROM prism_merge_ranges WHERE prism_partition_id = :id"),
        {"id": partition_id},
    ).scalar_one()
    if end != plan.chain_end:
        raise LeaseLost(f"the ranges end at {end}, not at {plan.chain_end} as planned; nothing was changed")


def save_range(
    connection: Connection, partition_id: int, planned: PlannedRange, result: MergeResult, now: datetime
) -> None:
    """Inserts a range behind the chain, or moves the upper bound of the one that was extended."""
    if result.row_count != planned.row_count:
        raise InvariantBroken(
            f"the merged object {result.output_key} holds {result.row_count} rows, its inputs {planned.row_count}"
        )
    connection.execute(
        text(
            "INSERT INTO prism_merge_ranges (prism_partition_id, lower_bound, upper_bound, content_length, row_count, "
            "fingerprint, create_time, update_time) VALUES (:id, NULL, 0, 0, 0, 0, :now, :now) "
            "ON CONFLICT (prism_partition_id, lower_bound) DO NOTHING"
        ),
        {"id": partition_id, "now": now},
    )
    connection.execute(
        text(
            "INSERT INTO prism_merge_ranges (prism_partition_id, lower_bound, upper_bound, content_length, row_count, "
            "fingerprint, create_time, update_time) VALUES (:id, :lower, :upper, :length, :rows, :print, :now, :now) "
            "ON CONFLICT (prism_partition_id, lower_bound) DO UPDATE SET upper_bound = EXCLUDED.upper_bound, "
            "content_length = EXCLUDED.content_length, row_count = EXCLUDED.row_count, "
            "fingerprint = EXCLUDED.fingerprint, update_time = EXCLUDED.update_time"
        ),
        {
            "id": partition_id,
            "lower": planned.lower_bound,
            "upper": planned.upper_bound,
            "length": result.content_length,
            "rows": result.row_count,
            "print": result.fingerprint,
            "now": now,
        },
    )


def raise_desired(connection: Connection, partition_id: int, upper_bound: int) -> None:
    """Asks the catalog for the ranges up to upper_bound; never lowers what was asked before."""
    connection.execute(
        text(
            "UPDATE prism_partitions SET desired_manifest_version = greatest(desired_manifest_version, :upper) "
            "WHERE prism_partition_id = :id"
        ),
        {"id": partition_id, "upper": upper_bound},
    )
