"""Where listings stand, and how much is pending."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from prism_assets.domain.errors import TerminalError
from prism_assets.domain.streams.stream import Stream
from prism_assets.metadata.intake import backlog, stream_scans
from prism_assets.metadata.intake.stream_scans import Scan
from prism_assets.metadata.intake.streams import KnownStream
from prism_assets_tests.metadata.rows import NOON, Rows

STREAM = Stream(name="events", bucket="staging", key_prefix="events/")
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
LATER = NOON + timedelta(minutes=1)
UNFINISHED = Scan(
    position_key="events/1",
    resume_key="events/5",
    resume_time=NOON,
    scan_time=NOON,
    full_scan_time=NOON,
    object_count=5,
)


def stored(rows: Rows) -> Scan | None:
    """The scan of the one stream."""
    with rows.database.begin() as connection:
        return stream_scans.load_scans(connection).get(stream_id(rows))


def stream_id(rows: Rows) -> int:
    return int(rows.value("SELECT prism_stream_id FROM prism_streams"))


def known_stream(rows: Rows, stream: Stream = STREAM) -> KnownStream:
    """Returns the single stream as known at the start of a listing."""
    table_id = int(rows.value("SELECT prism_table_id FROM prism_tables"))
    return KnownStream(stream_id(rows), table_id, stream)


def test_a_scan_is_read_as_it_was_saved(rows: Rows) -> None:
    rows.table()
    assert stored(rows) is None
    finished = Scan(
        position_key=None,
        resume_key=None,
        resume_time=None,
        scan_time=LATER,
        full_scan_time=NOON,
        object_count=7,
    )
    for scan in (UNFINISHED, finished):
        with rows.database.begin() as connection:
            stream_scans.save_scan(connection, known_stream(rows), scan)
        assert stored(rows) == scan


def test_a_failed_attempt_moves_nothing_but_the_time(rows: Rows) -> None:
    rows.table()
    with rows.database.begin() as connection:
        stream_scans.save_attempt(connection, stream_id(rows), NOON)
    first = stored(rows)
    assert first is not None
    assert (first.scan_time, first.position_key, first.object_count) == (NOON, None, 0)
    with rows.database.begin() as connection:
        stream_scans.save_scan(connection, known_stream(rows), UNFINISHED)
        stream_scans.save_attempt(connection, stream_id(rows), LATER)
    second = stored(rows)
    assert second is not None
    assert second.scan_time == LATER
    assert (second.position_key, second.resume_key, second.full_scan_time) == ("events/1", "events/5", NOON)


def test_a_listing_that_began_under_other_patterns_counts_as_none_of_all_objects(rows: Rows) -> None:
    """Such a listing may have left out objects to be read now: the next one lists all of them."""
    rows.table()
    with rows.database.begin() as connection:
        connection.exec_driver_sql("UPDATE prism_streams SET exclude_patterns = ARRAY['tmp/**']")
        stream_scans.save_scan(connection, known_stream(rows), UNFINISHED)
    saved = stored(rows)
    assert saved is not None
    assert saved.full_scan_time == EPOCH
    with rows.database.begin() as connection:
        stream_scans.save_scan(connection, known_stream(rows, replace(STREAM, exclude=("tmp/**",))), UNFINISHED)
    assert stored(rows) == UNFINISHED


@pytest.mark.parametrize(
    "change", ["removed = true", "prism_table_id = (SELECT max(prism_table_id) FROM prism_tables)"]
)
def test_nor_does_one_that_began_before_the_stream_left_its_table(rows: Rows, change: str) -> None:
    """The drop of a table never read deletes rows of objects that the listing has registered."""
    rows.table()
    known = known_stream(rows)
    rows.table("log.other")
    with rows.database.begin() as connection:
        connection.exec_driver_sql(f"UPDATE prism_streams SET {change} WHERE prism_stream_id = {known.stream_id}")
        stream_scans.save_scan(connection, known, UNFINISHED)
        saved = stream_scans.load_scans(connection)[known.stream_id]
    assert saved.full_scan_time == EPOCH


def test_a_database_of_an_older_version_is_told_as_such(rows: Rows) -> None:
    with rows.database.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE prism_stream_scans RENAME resume_key TO other")
    try:
        with pytest.raises(TerminalError, match="older version: run `prism table apply`"):
            stored_scans(rows)
    finally:
        with rows.database.begin() as connection:
            connection.exec_driver_sql("ALTER TABLE prism_stream_scans RENAME other TO resume_key")


def stored_scans(rows: Rows) -> dict[int, Scan]:
    with rows.database.begin() as connection:
        return stream_scans.load_scans(connection)


def test_the_backlog_counts_what_is_pending_and_stops_at_its_limit(rows: Rows) -> None:
    rows.staging(rows.table(), 5)
    rows.sql(
        "UPDATE prism_staging_objects SET retry_time = now() + interval '1 hour' WHERE prism_staging_object_id = 1"
    )
    rows.sql("UPDATE prism_staging_objects SET state = 'failed' WHERE prism_staging_object_id = 2")
    with rows.database.begin() as connection:
        assert backlog.count_backlog(connection, 100) == 4
        assert backlog.count_backlog(connection, 3) == 3
