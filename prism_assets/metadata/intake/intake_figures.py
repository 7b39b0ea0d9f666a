"""Figures of the intake by table, for metrics. One statement each for all tables, without locks."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, text

from prism_assets.metadata.intake.claims import NOT_BEGUN
from prism_assets.metadata.intake.staging_objects import NEVER_CONVERTED


@dataclass(frozen=True, kw_only=True)
class Unfinished:
    """Unconverted objects of a table, without unclaimed objects of stopped streams."""

    table_id: int
    pending: int
    pending_bytes: int
    claimed: int
    oldest_seconds: float
    """The age of the oldest object outside of a history."""


def count_unfinished_by_age(connection: Connection, table_ids: Collection[int]) -> list[Unfinished]:
    """Returns the counts of tables with unfinished objects. Reads one row for each of these objects."""
    return [Unfinished(**row._mapping) for row in connection.execute(text(_UNFINISHED), {"tables": list(table_ids)})]


_UNFINISHED = f"""
SELECT o.prism_table_id AS table_id, count(*) FILTER (WHERE o.state = 'pending') AS pending,
    CAST(coalesce(sum(o.content_length) FILTER (WHERE o.state = 'pending'), 0) AS bigint) AS pending_bytes,
    count(*) FILTER (WHERE o.state = 'claimed') AS claimed,
    CAST(greatest(0, extract(epoch FROM clock_timestamp()
        - min(coalesce(o.sent_after, o.send_time, o.first_receive_time)) FILTER (WHERE o.history_date IS NULL)))
        AS float8) AS oldest_seconds
FROM prism_staging_objects o JOIN prism_streams s USING (prism_stream_id)
WHERE o.state IN ('pending', 'claimed') AND o.prism_table_id = ANY(:tables)
    AND NOT (s.intake = 'wait' AND {NOT_BEGUN})
GROUP BY o.prism_table_id
"""


def count_given_up(connection: Connection, table_ids: Collection[int]) -> dict[int, int]:
    """Returns the objects that were given up and wait for a decision, by table."""
    rows = connection.execute(text(_GIVEN_UP), {"tables": list(table_ids)})
    return {row.table_id: row.objects for row in rows}


_GIVEN_UP = """
SELECT prism_table_id AS table_id, count(*) AS objects FROM prism_staging_objects
WHERE state = 'failed' AND NOT dismissed AND prism_table_id = ANY(:tables) GROUP BY prism_table_id
"""


@dataclass(frozen=True, kw_only=True)
class LastRows:
    """The last conversion of a table with rows."""

    table_id: int
    time: datetime
    is_older: bool
    """Whether the rows are older than `time`: of the last thousand conversions none had any."""


def last_rows(connection: Connection, table_ids: Collection[int]) -> list[LastRows]:
    """Returns the last conversion with rows, by table. A join table has the last one of its log.

    Objects of a history do not count: they would hide the lack of new ones. Reads at most the last thousand conversions
    of a table. If none of them had rows, the time of the first of them is an upper bound.
    """
    return [LastRows(**row._mapping) for row in connection.execute(text(_LAST_ROWS), {"tables": list(table_ids)})]


# Most often the first object that the index gives is the answer, and no further one is read.
_LAST_ROWS = f"""
SELECT t.prism_table_id AS table_id, coalesce(with_rows.finish_time, first.finish_time) AS time,
    with_rows.finish_time IS NULL AS is_older
FROM prism_tables t
LEFT JOIN prism_tables c ON c.changes_of = t.prism_table_id
LEFT JOIN LATERAL (
    SELECT finish_time FROM (
        SELECT finish_time, rows_out, history_date FROM prism_staging_objects
        WHERE prism_table_id = coalesce(c.prism_table_id, t.prism_table_id) AND state = 'done'
            AND finish_time > {NEVER_CONVERTED}
        ORDER BY finish_time DESC LIMIT 1000) q
    WHERE rows_out > 0 AND history_date IS NULL ORDER BY finish_time DESC LIMIT 1) with_rows ON true
LEFT JOIN LATERAL (
    SELECT min(finish_time) AS finish_time FROM (
        SELECT finish_time FROM prism_staging_objects
        WHERE prism_table_id = coalesce(c.prism_table_id, t.prism_table_id) AND state = 'done'
            AND finish_time > {NEVER_CONVERTED} AND with_rows.finish_time IS NULL
        ORDER BY finish_time DESC LIMIT 1000) q) first ON true
WHERE t.prism_table_id = ANY(:tables) AND coalesce(with_rows.finish_time, first.finish_time) IS NOT NULL
"""


@dataclass(frozen=True, kw_only=True)
class Conversions:
    """Sums over the objects of a table that were converted in a span of time."""

    table_id: int
    objects: int
    bytes: int
    lines: int
    rows: int
    quarantined: int
    filtered: int
    seconds: float
    """The sum of times from arrival to commit, of objects outside of a history."""
    within: tuple[int, ...]
    """Objects with a time up to each bound and above the former one, and last those above all bounds."""


def sum_conversions(
    connection: Connection,
    table_ids: Collection[int],
    bounds: Sequence[int],
    after: datetime,
    until: datetime,
) -> list[Conversions]:
    """Returns the conversions with after < finish time <= until. The index on finish times finds them."""
    values = {"tables": list(table_ids), "after": after, "until": until, "bounds": list(bounds)}
    rows = connection.execute(text(_CONVERTED), values)
    return [_conversions(row._mapping, len(bounds)) for row in rows]


def _conversions(row: Any, bounds: int) -> Conversions:
    found = {name: value for name, value in row.items() if name not in ("places", "counts")}
    within = [0] * (bounds + 1)
    for place, count in zip(row["places"], row["counts"], strict=True):
        within[place] = count
    return Conversions(**found, within=tuple(within))


# width_bucket gives the place among the bounds, where a time equal to a bound belongs to the next one. The difference
# is one in a million.
_CONVERTED = """
SELECT table_id, CAST(sum(objects) AS bigint) AS objects, CAST(sum(bytes) AS bigint) AS bytes,
    CAST(sum(lines) AS bigint) AS lines, CAST(sum(rows) AS bigint) AS rows,
    CAST(sum(quarantined) AS bigint) AS quarantined, CAST(sum(filtered) AS bigint) AS filtered,
    CAST(coalesce(sum(seconds), 0) AS float8) AS seconds,
    coalesce(array_agg(place) FILTER (WHERE place IS NOT NULL), '{}') AS places,
    coalesce(array_agg(objects) FILTER (WHERE place IS NOT NULL), '{}') AS counts
FROM (
    SELECT table_id, width_bucket(seconds, CAST(:bounds AS float8[])) AS place, count(*) AS objects,
        sum(content_length) AS bytes, sum(lines_in) AS lines, sum(rows_out) AS rows,
        sum(rows_quarantined) AS quarantined, sum(rows_filtered) AS filtered, sum(seconds) AS seconds
    FROM (
        SELECT prism_table_id AS table_id, content_length, coalesce(lines_in, 0) AS lines_in,
            coalesce(rows_out, 0) AS rows_out, coalesce(rows_quarantined, 0) AS rows_quarantined, rows_filtered,
            CASE WHEN history_date IS NULL THEN CAST(greatest(0, extract(epoch FROM
                finish_time - coalesce(sent_after, send_time, first_receive_time))) AS float8) END AS seconds
        FROM prism_staging_objects
        WHERE state = 'done' AND prism_table_id = ANY(:tables) AND finish_time > :after AND finish_time <= :until
    ) o
    GROUP BY table_id, place
) p
GROUP BY table_id
"""


@dataclass(frozen=True, kw_only=True)
class RunningBatches:
    """Batches at work."""

    alive: int
    silent: int
    """Batches silent for longer than their lease: the next run takes their objects over."""


def count_running(connection: Connection, lease_seconds: float) -> RunningBatches:
    """Returns the counts of running batches."""
    return RunningBatches(**connection.execute(text(_RUNNING), {"lease": lease_seconds}).one()._mapping)


_RUNNING = """
SELECT count(*) FILTER (WHERE NOT is_silent) AS alive, count(*) FILTER (WHERE is_silent) AS silent FROM (
    SELECT heartbeat_time < clock_timestamp() - make_interval(secs => :lease) AS is_silent
    FROM prism_stream_batches WHERE state = 'running') q
"""


@dataclass(frozen=True, kw_only=True)
class Mark:
    """A moment, with lower bounds for the ids of later batches and merges."""

    time: datetime
    batch_id: int
    """Batches with smaller ids had ended."""
    merge_log_id: int
    """Merges up to this id had ended."""


def mark_now(connection: Connection) -> Mark:
    """Returns the time of this transaction, which sees all that was committed before it.

    Ids bound the later searches, because batches and ended merges have no index on times.

    A margin of 100 ids covers rows that become visible out of order.
    """
    return Mark(**connection.execute(text(_MARK)).one()._mapping)


_MARK = """
SELECT now() AS time,
    coalesce((SELECT min(prism_stream_batch_id) FROM prism_stream_batches WHERE state = 'running'),
        (SELECT max(prism_stream_batch_id) FROM prism_stream_batches), 0) - 100 AS batch_id,
    coalesce((SELECT max(prism_merge_job_log_id) FROM prism_merge_job_log), 0) - 100 AS merge_log_id
"""


@dataclass(frozen=True, kw_only=True)
class EndedBatches:
    """Batches that ended in a span of time, in one state."""

    state: str
    batches: int
    seconds: float


def sum_batches(connection: Connection, mark: Mark, after: datetime, until: datetime) -> list[EndedBatches]:
    """Returns batches with after < finish time <= until. `mark` is not later than `after`."""
    values = {"first": mark.batch_id, "after": after, "until": until}
    return [EndedBatches(**row._mapping) for row in connection.execute(text(_ENDED), values)]


_ENDED = """
SELECT state, count(*) AS batches, CAST(sum(extract(epoch FROM finish_time - start_time)) AS float8) AS seconds
FROM prism_stream_batches
WHERE prism_stream_batch_id >= :first AND finish_time > :after AND finish_time <= :until GROUP BY state
"""
