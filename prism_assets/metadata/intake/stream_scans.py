"""Statements on prism_stream_scans: the state of each stream's listing."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timezone

from sqlalchemy import Connection, text

from prism_assets.domain.streams.intake import LeftOut
from prism_assets.domain.streams.topic import URL_PREFIX
from prism_assets.metadata.intake.streams import IN_USE, STREAM_URL, KnownStream

_NEVER = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True, kw_only=True)
class Scan:
    """The state of a stream's listing."""

    position_key: str | None
    """The next listing of new objects begins after this key."""
    resume_key: str | None
    """An unfinished listing continues after this key. None if no listing is unfinished."""
    resume_time: datetime | None
    """The latest modification time seen by the unfinished listing."""
    scan_time: datetime
    full_scan_time: datetime
    object_count: int
    left_out: Mapping[LeftOut, int] = field(default_factory=dict)
    """Numbers of objects that are not read, by reason."""


def load_scans(connection: Connection) -> dict[int, Scan]:
    """Returns the listings of all streams tried at least once, by stream id. Reads without locks."""
    rows = connection.execute(text(_SCANS))
    return {
        row.prism_stream_id: Scan(
            position_key=row.position_key,
            resume_key=row.resume_key,
            resume_time=row.resume_time,
            scan_time=row.scan_time,
            full_scan_time=row.full_scan_time,
            object_count=row.object_count,
            left_out=_by_reason(row.left_out),
        )
        for row in rows
    }


def _by_reason(stored: Mapping[str, int]) -> dict[LeftOut, int]:
    return {LeftOut(reason): count for reason, count in stored.items()}


_SCANS = """
SELECT prism_stream_id, position_key, resume_key, resume_time, scan_time, full_scan_time, object_count, left_out
FROM prism_stream_scans
"""


def save_scan(connection: Connection, known: KnownStream, scan: Scan) -> None:
    """Stores the state of a listing, after the transactions that registered the objects up to it.

    If the stream changed since the listing began, the listing does not count as complete. With new patterns the stream
    reads objects that this listing left out. If the stream lost its table, objects registered by this listing may be
    gone, because the drop of a table that was never read forgets them. Locks the row of the stream's listing.
    """
    connection.execute(
        text(_SAVE_SCAN),
        {
            "stream": known.stream_id,
            "table": known.table_id,
            "key": scan.position_key,
            "resume": scan.resume_key,
            "youngest": scan.resume_time,
            "now": scan.scan_time,
            "full": scan.full_scan_time,
            "count": scan.object_count,
            "left_out": json.dumps({reason.value: count for reason, count in scan.left_out.items()}),
            "include": list(known.stream.include),
            "exclude": list(known.stream.exclude),
            "since": known.stream.since,
            "route": known.stream.route and known.stream.route.key,
            "taken": list(known.stream.route.taken_keys) if known.stream.route else [],
        },
    )


_SAVE_SCAN = """
INSERT INTO prism_stream_scans (prism_stream_id, position_key, resume_key, resume_time, scan_time, full_scan_time,
    object_count, first_time, left_out)
SELECT prism_stream_id, :key, :resume, :youngest, :now, CASE
        WHEN (include_patterns, exclude_patterns) = (CAST(:include AS text[]), CAST(:exclude AS text[]))
            AND since IS NOT DISTINCT FROM CAST(:since AS date) AND route_key IS NOT DISTINCT FROM CAST(:route AS text) AND taken_keys = CAST(:taken AS text[])
            AND prism_table_id = :table AND NOT removed
        THEN CAST(:full AS timestamptz) ELSE to_timestamp(0) END, :count, :now, CAST(:left_out AS jsonb)
FROM prism_streams WHERE prism_stream_id = :stream
ON CONFLICT (prism_stream_id) DO UPDATE SET position_key = EXCLUDED.position_key,
    resume_key = EXCLUDED.resume_key, resume_time = EXCLUDED.resume_time, scan_time = EXCLUDED.scan_time,
    full_scan_time = EXCLUDED.full_scan_time, object_count = EXCLUDED.object_count,
    left_out = EXCLUDED.left_out, error_time = NULL, last_error = NULL
"""


def forget_late(connection: Connection, stream_id: int) -> None:
    """Forgets the objects that came after their history, as `prism history` has registered them. Locks the row.

    The next listing counts those that came meanwhile.
    """
    connection.execute(text(_FORGET_LATE), {"stream": stream_id, "reason": LeftOut.AFTER_HISTORY.value})


_FORGET_LATE = (
    "UPDATE prism_stream_scans SET left_out = left_out - CAST(:reason AS text) WHERE prism_stream_id = :stream"
)


def save_attempt(connection: Connection, stream_id: int, now: datetime, error: str | None = None) -> None:
    """Records a failed listing, or a failed look at a topic.

    The stream goes to the end of the line, so that it does not block the others.

    An `error` that needs a person is kept until a listing succeeds, with the time of the first failure. Locks the row
    of the stream's listing.
    """
    connection.execute(text(_SAVE_ATTEMPT), {"stream": stream_id, "now": now, "never": _NEVER, "error": error})


_SAVE_ATTEMPT = """
INSERT INTO prism_stream_scans
    (prism_stream_id, scan_time, full_scan_time, object_count, first_time, error_time, last_error)
VALUES (:stream, :now, :never, 0, :now, CASE WHEN CAST(:error AS text) IS NOT NULL THEN CAST(:now AS timestamptz) END,
    CAST(:error AS text))
ON CONFLICT (prism_stream_id) DO UPDATE SET scan_time = EXCLUDED.scan_time,
    error_time = coalesce(prism_stream_scans.error_time, EXCLUDED.error_time),
    last_error = coalesce(EXCLUDED.last_error, prism_stream_scans.last_error)
"""


def save_look(connection: Connection, stream_id: int, now: datetime) -> None:
    """Records that a stream of a topic was found as it should be. Locks the row of the stream's look."""
    connection.execute(text(_SAVE_LOOK), {"stream": stream_id, "now": now})


_SAVE_LOOK = """
INSERT INTO prism_stream_scans (prism_stream_id, scan_time, full_scan_time, object_count, first_time)
VALUES (:stream, :now, :now, 0, :now)
ON CONFLICT (prism_stream_id) DO UPDATE SET scan_time = EXCLUDED.scan_time,
    full_scan_time = EXCLUDED.full_scan_time, error_time = NULL, last_error = NULL
"""


@dataclass(frozen=True, kw_only=True)
class ListedStream:
    """The results of all listings of a stream."""

    table_id: int
    stream: str
    url: str
    first_time: datetime
    """The time of the first listing."""
    is_whole: bool
    """A listing of the whole stream was completed once."""
    found_any: bool
    """A listing or a message named an object to read."""
    left_out: Mapping[LeftOut, int]
    error_time: datetime | None
    """The first failure since the last success."""
    last_error: str | None
    """Why the stream cannot be listed."""
    history_from: date | None
    """The first day that `prism history` has registered."""

    @property
    def is_topic(self) -> bool:
        """Whether the stream reads a topic, in which a worker looks for messages."""
        return self.url.startswith(URL_PREFIX)


def load_listed(connection: Connection, table_ids: Collection[int]) -> list[ListedStream]:
    """Returns the streams of tables that were listed at least once, by id. Leaves out stopped and removed streams.

    Reads without locks.
    """
    rows = connection.execute(text(_LISTED), {"tables": list(table_ids)})
    return [ListedStream(**{**row._mapping, "left_out": _by_reason(row.left_out)}) for row in rows]


_LISTED = f"""
SELECT s.prism_table_id AS table_id, s.stream_name AS stream, {STREAM_URL} AS url,
    x.first_time, x.left_out, x.error_time, x.last_error, x.full_scan_time > to_timestamp(0) AS is_whole,
    s.found_any, s.history_from
FROM prism_streams s JOIN prism_stream_scans x USING (prism_stream_id)
WHERE s.prism_table_id = ANY(:tables) AND {IN_USE}
ORDER BY s.prism_stream_id
"""
