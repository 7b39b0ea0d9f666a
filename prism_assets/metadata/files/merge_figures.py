"""Figures of merges by table, for metrics. One statement each for all tables, without locks."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, text

from prism_assets.metadata.files.merge_jobs import DUE_TIME


@dataclass(frozen=True, kw_only=True)
class TableMergeQueue:
    """The merge jobs of a table."""

    table_id: int
    due: int
    due_seconds: float
    """The time for which the oldest due job waits, or 0."""
    running: int
    parked: int


def count_jobs(connection: Connection, table_ids: Collection[int]) -> list[TableMergeQueue]:
    """Returns the queues of tables with merge jobs. A parked job is due at its `retry_time`."""
    return [TableMergeQueue(**row._mapping) for row in connection.execute(text(_JOBS), {"tables": list(table_ids)})]


_JOBS = f"""
SELECT table_id, count(*) FILTER (WHERE due_time <= clock_timestamp()) AS due,
    CAST(greatest(0, coalesce(extract(epoch FROM clock_timestamp() - min(due_time)), 0)) AS float8) AS due_seconds,
    count(*) FILTER (WHERE ongoing_mark > 0) AS running, count(*) FILTER (WHERE parked) AS parked
FROM (
    SELECT p.prism_table_id AS table_id, ongoing_mark, parked,
        CASE WHEN ongoing_mark = 0 THEN {DUE_TIME} END AS due_time
    FROM prism_merge_jobs j JOIN prism_partitions p USING (prism_partition_id)
    WHERE p.prism_table_id = ANY(:tables)
) j
GROUP BY table_id
"""


@dataclass(frozen=True, kw_only=True)
class EndedMerges:
    """Merges of a table that ended in a span of time."""

    table_id: int
    merges: int
    failed: int
    seconds: float
    rows: int
    bytes: int


def sum_merges(connection: Connection, first_id: int, after: datetime, until: datetime) -> list[EndedMerges]:
    """Returns merges with after < finish time <= until, and an id above `first_id`."""
    values = {"first": first_id, "after": after, "until": until}
    return [EndedMerges(**row._mapping) for row in connection.execute(text(_ENDED), values)]


_ENDED = """
SELECT p.prism_table_id AS table_id, count(*) FILTER (WHERE error IS NULL) AS merges,
    count(*) FILTER (WHERE error IS NOT NULL) AS failed,
    CAST(sum(extract(epoch FROM finish_time - start_time)) AS float8) AS seconds,
    CAST(coalesce(sum(row_count) FILTER (WHERE error IS NULL), 0) AS bigint) AS rows,
    CAST(coalesce(sum(output_bytes) FILTER (WHERE error IS NULL), 0) AS bigint) AS bytes
FROM prism_merge_job_log JOIN prism_partitions p USING (prism_partition_id)
WHERE prism_merge_job_log_id > :first AND finish_time > :after AND finish_time <= :until
GROUP BY p.prism_table_id
"""
