"""Figures of waiting merges for sensors and checks. Reads prism_merge_jobs without locks."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import date, datetime

from sqlalchemy import Connection, text

from prism_assets.metadata.files.merge_jobs import DUE_TIME, IS_DUE, NONE_RUNS


@dataclass(frozen=True, kw_only=True)
class DueMerges:
    """Merge jobs of one partition a worker could take now: due ones, and those of dead workers."""

    table_id: int
    date: date
    due: int
    abandoned: int


def due_merges(connection: Connection, now: datetime, lease_seconds: float) -> list[DueMerges]:
    """Returns partitions with work for Merge, the longest due first. Leaves out partitions in work, and parked jobs
    before their time.
    """
    rows = connection.execute(text(_DUE), {"now": now, "lease": lease_seconds})
    return [DueMerges(**row._mapping) for row in rows]


_DUE = f"""
SELECT p.prism_table_id AS table_id, p.partition_date AS date, count(*) FILTER (WHERE j.ongoing_mark = 0) AS due,
    count(*) FILTER (WHERE j.ongoing_mark > 0) AS abandoned
FROM prism_merge_jobs j JOIN prism_partitions p USING (prism_partition_id)
WHERE (j.ongoing_mark = 0 AND {IS_DUE} AND {NONE_RUNS})
    OR (j.ongoing_mark > 0 AND j.heartbeat_time < clock_timestamp() - make_interval(secs => :lease))
GROUP BY p.prism_table_id, p.partition_date
ORDER BY min(j.schedule_time), p.prism_table_id
"""


@dataclass(frozen=True, kw_only=True)
class MergeQueue:
    """All merge jobs in figures. `next_time` is the first due time of a waiting or parked job."""

    waiting: int
    running: int
    parked: int
    next_time: datetime | None


def merge_queue(connection: Connection) -> MergeQueue:
    """Returns figures for the sentence on why no merge started."""
    return MergeQueue(**connection.execute(text(_QUEUE)).one()._mapping)


_QUEUE = f"""
SELECT count(*) FILTER (WHERE ongoing_mark = 0 AND NOT parked) AS waiting,
    count(*) FILTER (WHERE ongoing_mark > 0) AS running,
    count(*) FILTER (WHERE parked) AS parked,
    min({DUE_TIME}) FILTER (WHERE ongoing_mark = 0) AS next_time
FROM prism_merge_jobs j
"""


@dataclass(frozen=True, kw_only=True)
class ParkedJob:
    """A merge that failed too often. It is retried at `retry_time`, or only on request."""

    table_id: int
    date: date
    attempts: int
    last_error: str
    retry_time: datetime | None


def parked_jobs(connection: Connection, table_ids: Collection[int]) -> list[ParkedJob]:
    """Parked merge jobs by table and date."""
    rows = connection.execute(text(_PARKED), {"tables": list(table_ids)})
    return [ParkedJob(**row._mapping) for row in rows]


_PARKED = """
SELECT p.prism_table_id AS table_id, p.partition_date AS date, j.attempts,
    coalesce(j.last_error, '') AS last_error, j.retry_time
FROM prism_merge_jobs j JOIN prism_partitions p USING (prism_partition_id)
WHERE j.parked AND j.ongoing_mark = 0 AND p.prism_table_id = ANY(:tables)
ORDER BY p.prism_table_id, p.partition_date
"""
