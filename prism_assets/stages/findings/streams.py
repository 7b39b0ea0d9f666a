"""Streams without objects: a missing bucket, a wrong prefix, or patterns that exclude everything."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from prism_assets.domain.findings import Acts, Finding
from prism_assets.domain.streams.intake import LeftOut, describe_left_out
from prism_assets.metadata.intake.stream_scans import ListedStream
from prism_assets.stages.findings.subject import FindingCheck, Look, Subject

SILENT_STREAMS = "silent_streams"
PATIENCE = timedelta(hours=1)
"""A stream may find nothing for this long, because the writer may begin later."""


def find_silent(look: Look) -> Iterator[Finding]:
    """Streams without an object, and excluded objects of other streams.

    An unlistable stream waits for a person at once, an empty one after an hour.
    """
    for item in look.listed:
        unread = dict(item.left_out)
        for reason in (LeftOut.OTHER_TABLE, LeftOut.BEFORE_SINCE, LeftOut.AFTER_HISTORY):
            unread.pop(reason, None)
        table, left_out = look.names[item.table_id], describe_left_out(unread)
        if item.last_error is not None and item.error_time is not None:
            yield _unlisted(table, item)
        elif not item.found_any and item.is_whole and not item.is_topic:
            yield _empty(table, item, left_out, is_old=look.now - item.first_time >= PATIENCE)
        if left_out:
            yield Finding(
                kind="objects_left_out",
                table=table,
                says=f"stream {item.stream}: {left_out}",
                remedy="`include` and `exclude` in the table file say which are read",
                acts=Acts.TIME,
                count=sum(unread.values()),
                ends_runs=False,
            )


def _unlisted(table: str, item: ListedStream) -> Finding:
    verb, again = ("read", "the worker tries again") if item.is_topic else ("listed", "`prism discover`")
    return Finding(
        kind="silent_stream",
        table=table,
        says=f"stream {item.stream} cannot be {verb} at {item.url} since {item.error_time:%Y-%m-%d %H:%M}Z: "
        f"{item.last_error}",
        remedy=f"Mend the cause, then {again}. Objects that it registered earlier are converted meanwhile",
        since=item.error_time,
        invariant="I10",
    )


def _empty(table: str, item: ListedStream, left_out: str, *, is_old: bool) -> Finding:
    return Finding(
        kind="silent_stream",
        table=table,
        says=f"stream {item.stream} has found no object to read at {item.url} since "
        f"{item.first_time:%Y-%m-%d %H:%M}Z{f', {left_out}' if left_out else ''}",
        remedy=f"Correct its url in the table file, {'or its include and exclude, ' if left_out else ''}or say "
        "`enabled: false` until objects come",
        acts=Acts.PERSON if is_old else Acts.TIME,
        since=item.first_time,
        invariant="I10",
    )


STREAMS = Subject(
    find=find_silent,
    check=FindingCheck(
        name=SILENT_STREAMS,
        asset="live",
        about="Every stream that is read can be listed, and has found an object.",
        passes="every stream that was listed has found an object",
        fails=lambda item: item.acts is Acts.PERSON,
    ),
)
