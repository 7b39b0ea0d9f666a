"""Statements on waiting objects of prefixes that several tables read, for changes of their routes or format.

The caller holds the streams and the epoch: nobody registers or claims an object meanwhile. A changed route holds for
objects that no table has claimed yet. If one has, all tables claim the object under the routes of that time, also after
they gave it up: otherwise one table would read by the former route and another by the new one, and a line could be in
neither.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from sqlalchemy import Connection, text

from prism_assets.metadata.intake.claims import NEVER_CLAIMED


def end_histories(connection: Connection, bucket: str, key_prefix: str) -> None:
    """Gives objects that wait for `prism history` to Stream. Call it before `keep_begun`. Locks their rows.

    Only a prefix with a single table has a history: a claim decides by the routes of all tables.
    """
    connection.execute(text(_END_HISTORIES), {"bucket": bucket, "prefix": key_prefix})


_END_HISTORIES = """
UPDATE prism_staging_objects o SET state = 'pending', history_date = NULL
FROM prism_streams s
WHERE s.bucket_name = :bucket AND s.key_prefix = :prefix AND o.prism_stream_id = s.prism_stream_id
    AND o.state = 'history' AND o.history_date IS NOT NULL
"""


def keep_begun(connection: Connection, bucket: str, key_prefix: str) -> None:
    """Fixes the current definition for each object that a table of the prefix has claimed.

    All later claims of the object use it. Called before new definitions are stored. Locks the rows of these objects, by
    ascending id.
    """
    connection.execute(text(_KEEP_BEGUN), {"bucket": bucket, "prefix": key_prefix})


_KEEP_BEGUN = """
UPDATE prism_staging_objects o SET claim_version = w.version
FROM (
    SELECT o.prism_staging_object_id AS id, t.definition_version AS version
    FROM prism_streams s JOIN prism_tables t USING (prism_table_id)
    JOIN prism_staging_objects o ON o.prism_stream_id = s.prism_stream_id AND o.prism_table_id = s.prism_table_id
    WHERE s.bucket_name = :bucket AND s.key_prefix = :prefix AND o.state IN ('pending', 'claimed', 'failed')
        AND o.claim_version IS NULL
        AND EXISTS (SELECT 1 FROM prism_staging_objects k JOIN prism_streams g USING (prism_stream_id)
            WHERE k.bucket_name = o.bucket_name AND k.object_key = o.object_key AND k.first_batch_id IS NOT NULL
                AND g.bucket_name = :bucket AND g.key_prefix = :prefix AND g.records = s.records)
    ORDER BY o.prism_staging_object_id FOR UPDATE OF o
) w
WHERE o.prism_staging_object_id = w.id
"""


@dataclass(frozen=True, kw_only=True)
class WaitingObject:
    """An object of a prefix that no table has claimed."""

    key: str
    content_length: int
    by_stream: Mapping[int, int]
    """Its rows, by stream."""


def load_unclaimed(connection: Connection, bucket: str, key_prefix: str) -> list[WaitingObject]:
    """Returns the objects of a prefix that no table has claimed. Reads without further locks."""
    rows = connection.execute(text(_UNCLAIMED), {"bucket": bucket, "prefix": key_prefix})
    return [
        WaitingObject(
            key=row.object_key, content_length=row.length, by_stream=dict(zip(row.streams, row.ids, strict=True))
        )
        for row in rows
    ]


_UNCLAIMED = f"""
SELECT o.object_key, max(o.content_length) AS length, array_agg(o.prism_stream_id ORDER BY o.prism_stream_id) AS streams,
    array_agg(o.prism_staging_object_id ORDER BY o.prism_stream_id) AS ids
FROM prism_streams s JOIN prism_staging_objects o USING (prism_stream_id)
WHERE s.bucket_name = :bucket AND s.key_prefix = :prefix AND o.state = 'pending' AND {NEVER_CLAIMED}
GROUP BY o.object_key ORDER BY o.object_key
"""


def deal(connection: Connection, leave: Collection[int], take: Collection[tuple[int, int]]) -> None:
    """Takes waiting objects from streams, and gives them to others of the prefix.

    `leave` are ids of rows to delete. `take` has rows to copy, each with the stream that gets the object. An object
    never leaves without a stream that has it. Locks the deleted rows.
    """
    if take:
        values = {"rows": [row for row, _ in take], "streams": [stream for _, stream in take]}
        connection.execute(text(_TAKE), values)
    if leave:
        connection.execute(text(_LEAVE), {"rows": sorted(leave)})


_TAKE = """
INSERT INTO prism_staging_objects (prism_stream_id, prism_table_id, bucket_name, object_key, etag, content_length,
    send_time, first_receive_time)
SELECT s.prism_stream_id, s.prism_table_id, o.bucket_name, o.object_key, o.etag, o.content_length, o.send_time,
    o.first_receive_time
FROM unnest(CAST(:rows AS bigint[]), CAST(:streams AS bigint[])) AS d (id, stream)
JOIN prism_staging_objects o ON o.prism_staging_object_id = d.id
JOIN prism_streams s ON s.prism_stream_id = d.stream
ORDER BY s.prism_stream_id, o.object_key
ON CONFLICT (bucket_name, object_key, prism_table_id) DO NOTHING
"""
_LEAVE = "DELETE FROM prism_staging_objects WHERE prism_staging_object_id = ANY(:rows)"
