"""Proofs over ranges of offsets: each offset from the start to the position is in one range. Reads without locks."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, text


@dataclass(frozen=True, kw_only=True)
class OffsetSums:
    """The last ranges of one partition, against its position."""

    table_id: int
    topic: str
    partition: int
    next_offset: int
    ranges: int
    from_offset: int
    """Where the first of these ranges begins."""
    offsets: int
    """The sum of `to - from`."""

    @property
    def missing(self) -> int:
        """Offsets before the position that are in no range. Negative for offsets in two ranges."""
        return self.next_offset - self.from_offset - self.offsets


@dataclass(frozen=True, kw_only=True)
class SkippedOffsets:
    """A range of offsets that a person decided not to read."""

    table_id: int
    topic: str
    partition: int
    from_offset: int
    to_offset: int
    reason: str
    time: datetime

    @property
    def count(self) -> int:
        """The number of offsets."""
        return self.to_offset - self.from_offset

    def __str__(self) -> str:
        return (
            f"offsets {self.from_offset} to {self.to_offset - 1} of partition {self.partition} of topic {self.topic} "
            f"were skipped at {self.time:%Y-%m-%d %H:%M}Z by {self.reason}"
        )


def sum_last_ranges(connection: Connection, table_ids: Collection[int], most: int) -> list[OffsetSums]:
    """Returns the sums over the last `most` ranges of each partition, by an index. Ended topics are left out."""
    rows = connection.execute(text(_LAST_RANGES), {"tables": list(table_ids), "most": most})
    return [
        OffsetSums(
            table_id=row.prism_table_id,
            topic=row.topic_name,
            partition=row.partition,
            next_offset=row.next_offset,
            ranges=row.ranges,
            from_offset=row.first_offset,
            offsets=row.offsets,
        )
        for row in rows
    ]


_LAST_RANGES = """
SELECT s.prism_table_id, t.topic_name, p.partition, p.next_offset, r.ranges, r.first_offset, r.offsets
FROM prism_topics t
JOIN prism_streams s USING (prism_stream_id)
JOIN prism_topic_partitions p USING (prism_topic_id)
CROSS JOIN LATERAL (
    SELECT count(*) AS ranges, coalesce(min(coalesce(from_offset, to_offset)), 0) AS first_offset,
        coalesce(sum(to_offset - from_offset), 0)::bigint AS offsets
    FROM (SELECT from_offset, to_offset FROM prism_offset_ranges o
        WHERE o.prism_topic_id = p.prism_topic_id AND o.partition = p.partition
        ORDER BY to_offset DESC LIMIT :most) last
) r
WHERE s.prism_table_id = ANY(:tables) AND NOT t.ended
ORDER BY s.prism_table_id, t.topic_name, p.partition
"""


def load_skipped(
    connection: Connection, table_ids: Collection[int], since: datetime | None = None
) -> list[SkippedOffsets]:
    """Returns the skipped ranges of some tables, the newest first: of all time, or since then. Also of ended topics."""
    rows = connection.execute(text(_SKIPPED), {"tables": list(table_ids), "since": since})
    return [
        SkippedOffsets(
            table_id=row.prism_table_id,
            topic=row.topic_name,
            partition=row.partition,
            from_offset=row.from_offset,
            to_offset=row.to_offset,
            reason=row.reason or "",
            time=row.create_time,
        )
        for row in rows
    ]


_SKIPPED = """
SELECT s.prism_table_id, t.topic_name, r.partition, r.from_offset, r.to_offset, r.reason, r.create_time
FROM prism_offset_ranges r JOIN prism_topics t USING (prism_topic_id) JOIN prism_streams s USING (prism_stream_id)
WHERE r.kind = 'skipped' AND s.prism_table_id = ANY(:tables)
    AND (CAST(:since AS timestamptz) IS NULL OR r.create_time >= :since)
ORDER BY r.create_time DESC, r.prism_topic_id, r.partition, r.from_offset
"""


UNEQUAL_OFFSETS = """
SELECT s.prism_table_id AS table_id, CAST(NULL AS date) AS day, count(*) AS found,
    (array_agg(format('topic %s, partition %s: %s offsets from %s to %s, and %s in its ranges',
        t.topic_name, p.partition, p.next_offset - r.first, r.first, p.next_offset, r.offsets)
        ORDER BY p.partition))[1] AS example
FROM prism_topics t
JOIN prism_streams s USING (prism_stream_id)
JOIN prism_topic_partitions p USING (prism_topic_id)
LEFT JOIN (
    SELECT prism_topic_id, partition, min(to_offset) FILTER (WHERE from_offset IS NULL) AS first,
        coalesce(sum(to_offset - from_offset), 0) AS offsets
    FROM prism_offset_ranges GROUP BY prism_topic_id, partition
) r USING (prism_topic_id, partition)
WHERE s.prism_table_id = ANY(:tables) AND r.offsets IS DISTINCT FROM p.next_offset - r.first
GROUP BY s.prism_table_id ORDER BY 1
"""

# Objects of discarded streams are done without a line, and have no definition. Upkeep forgets the objects of ranges that
# were archived. Ranges of one object share a transaction with its row.
UNEQUAL_RECORDS = """
SELECT o.prism_table_id AS table_id, CAST(NULL AS date) AS day, count(*) AS found,
    (array_agg(format('s3://%s/%s: %s messages, and %s lines', o.bucket_name, o.object_key, r.records, o.lines_in)
        ORDER BY o.prism_staging_object_id))[1] AS example
FROM (
    SELECT prism_staging_object_id, sum(records) AS records FROM prism_offset_ranges
    WHERE prism_staging_object_id IS NOT NULL GROUP BY prism_staging_object_id
) r
JOIN prism_staging_objects o USING (prism_staging_object_id)
WHERE o.state = 'done' AND o.definition_version IS NOT NULL AND o.prism_table_id = ANY(:tables) AND o.lines_in <> r.records
GROUP BY o.prism_table_id ORDER BY 1
"""
