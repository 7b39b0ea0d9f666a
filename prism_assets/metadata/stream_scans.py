"""Statements on prism_stream_scans: where the listing of each stream stands."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone

from sqlalchemy import Connection, text

_NEVER = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True, kw_only=True)
class Scan:
    """Where the listing of a stream stands.

    `resume_key` and `resume_time` are set while a listing is unfinished: it goes on behind the key, and the youngest
    object that it has seen so far is of that time.
    """

    position_key: str | None
    resume_key: str | None
    resume_time: datetime | None
    scan_time: datetime
    full_scan_time: datetime
    object_count: int


def load_scans(connection: Connection) -> dict[int, Scan]:
    """The listings of all streams that were ever tried, by stream id. Reads without locks."""
    rows = connection.execute(text(_SCANS))
    return {
        row.prism_stream_id: Scan(
            position_key=row.position_key,
            resume_key=row.resume_key,
            resume_time=row.resume_time,
            scan_time=row.scan_time,
            full_scan_time=row.full_scan_time,
            object_count=row.object_count,
        )
        for row in rows
    }


_SCANS = """
SELECT prism_stream_id, position_key, resume_key, resume_time, scan_time, full_scan_time, object_count
FROM prism_stream_scans
"""


def save_scan(connection: Connection, stream_id: int, scan: Scan) -> None:
    """Stores how far a listing came; called after the transactions that registered what lies before it.

    Locks the row of the stream's listing.
    """
    connection.execute(
        text(_SAVE_SCAN),
        {
            "stream": stream_id,
            "key": scan.position_key,
            "resume": scan.resume_key,
            "youngest": scan.resume_time,
            "now": scan.scan_time,
            "full": scan.full_scan_time,
            "count": scan.object_count,
        },
    )


_SAVE_SCAN = """
INSERT INTO prism_stream_scans
    (prism_stream_id, position_key, resume_key, resume_time, scan_time, full_scan_time, object_count)
VALUES (:stream, :key, :resume, :youngest, :now, :full, :count)
ON CONFLICT (prism_stream_id) DO UPDATE SET position_key = EXCLUDED.position_key,
    resume_key = EXCLUDED.resume_key, resume_time = EXCLUDED.resume_time, scan_time = EXCLUDED.scan_time,
    full_scan_time = EXCLUDED.full_scan_time, object_count = EXCLUDED.object_count
"""


def save_attempt(connection: Connection, stream_id: int, now: datetime) -> None:
    """Stores that a listing failed: its stream goes to the end of the line, or it would keep the others waiting.

    Locks the row of the stream's listing.
    """
    connection.execute(text(_SAVE_ATTEMPT), {"stream": stream_id, "now": now, "never": _NEVER})


_SAVE_ATTEMPT = """
INSERT INTO prism_stream_scans (prism_stream_id, scan_time, full_scan_time, object_count)
VALUES (:stream, :now, :never, 0)
ON CONFLICT (prism_stream_id) DO UPDATE SET scan_time = EXCLUDED.scan_time
"""
