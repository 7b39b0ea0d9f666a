"""Figures for people: sums over objects and ranges. For status, metadata and checks, not for the hot path."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, text


@dataclass(frozen=True, kw_only=True)
class PartitionFigures:
    """Sums of one partition; bytes are those of Parquet objects."""

    rows: int = 0
    small_objects: int = 0
    unmerged_objects: int = 0
    unmerged_bytes: int = 0
    merged_objects: int = 0
    merged_bytes: int = 0
    last_arrival: datetime | None = None


def partition_figures(connection: Connection, table_id: int) -> defaultdict[int, PartitionFigures]:
    """Figures of all partitions of a table by partition id; zeros for those without objects."""
    rows = connection.execute(
        text(
            "SELECT p.prism_partition_id, s.*, r.* FROM prism_partitions p "
            "CROSS JOIN LATERAL (SELECT count(*) AS objects, coalesce(sum(row_count), 0) AS rows, "
            "count(*) FILTER (WHERE prism_small_object_id > p.desired_manifest_version) AS unmerged, "
            "coalesce(sum(content_length) FILTER (WHERE prism_small_object_id > p.desired_manifest_version), 0) "
            "AS unmerged_bytes, max(upload_start_time) AS last_arrival "
            "FROM prism_small_objects WHERE prism_partition_id = p.prism_partition_id) s "
            "CROSS JOIN LATERAL (SELECT count(*) AS ranges, coalesce(sum(content_length), 0) AS range_bytes "
            "FROM prism_merge_ranges WHERE prism_partition_id = p.prism_partition_id AND lower_bound IS NOT NULL) r "
            "WHERE p.prism_table_id = :table"
        ),
        {"table": table_id},
    )
    found: defaultdict[int, PartitionFigures] = defaultdict(PartitionFigures)
    for row in rows:
        found[row.prism_partition_id] = PartitionFigures(
            rows=int(row.rows),
            small_objects=row.objects,
            unmerged_objects=row.unmerged,
            unmerged_bytes=int(row.unmerged_bytes),
            merged_objects=row.ranges,
            merged_bytes=int(row.range_bytes),
            last_arrival=row.last_arrival,
        )
    return found
