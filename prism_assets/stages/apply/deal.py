"""Gives waiting objects of a prefix with changed routes to the tables that now read them."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection

from prism_assets.domain.streams.intake import reason_left_out
from prism_assets.metadata.intake import batches, dealing
from prism_assets.metadata.intake.dealing import WaitingObject
from prism_assets.metadata.intake.streams import KnownStream, load_streams
from prism_assets.stages.apply.shared_prefixes import ChangedPrefix


def keep_begun(connection: Connection, changed: Sequence[ChangedPrefix]) -> None:
    """Keeps routes for claimed objects, and ends histories of the prefixes. Call it before new definitions are stored.

    Running batches wait with their commits. So call it before the caller locks rows needed by a commit, such as
    partitions.
    """
    if changed:
        batches.lock_all_running(connection)
    for prefix in changed:
        dealing.end_histories(connection, prefix.bucket, prefix.key_prefix)
        dealing.keep_begun(connection, prefix.bucket, prefix.key_prefix)


def deal_waiting(connection: Connection, changed: Sequence[ChangedPrefix]) -> None:
    """Gives unclaimed objects to the streams now in force. Call it after the streams are stored.

    The transaction of the apply holds all changes, so a death leaves every object with its former tables.
    """
    known = load_streams(connection)
    for prefix in changed:
        streams = [
            item for item in known if (item.stream.bucket, item.stream.key_prefix) == (prefix.bucket, prefix.key_prefix)
        ]
        by_id = {item.stream_id: item for item in streams}
        leave: list[int] = []
        take: list[tuple[int, int]] = []
        for waiting in dealing.load_unclaimed(connection, prefix.bucket, prefix.key_prefix):
            readers = _readers(streams, waiting)
            served = {item.records for item in readers}
            wanted = {item.stream_id for item in readers}
            row = next(iter(waiting.by_stream.values()))
            take += [(row, stream) for stream in sorted(wanted - waiting.by_stream.keys())]
            # Without another table for its records, an object is still read by the table that has it.
            leave += [
                own
                for stream, own in waiting.by_stream.items()
                if stream not in wanted and by_id[stream].records in served
            ]
        dealing.deal(connection, leave, take)


def _readers(streams: Sequence[KnownStream], waiting: WaitingObject) -> list[KnownStream]:
    return [
        item
        for item in streams
        if not item.removed and reason_left_out(item.stream, waiting.key, waiting.content_length) is None
    ]
