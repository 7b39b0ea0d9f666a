"""Messages and spool objects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from prism_assets.domain.columns.column import Column
from prism_assets.domain.streams.stream import Format, Stream
from prism_assets.domain.streams.topic import Tombstones, Topic
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.kernels.messages.spool_file import Headers, Segment, SpoolOrigin, encode, to_batch
from prism_assets_tests.kernels.builders import a_table

ORIGIN = SpoolOrigin(cluster="main", cluster_id="MkU3OEVB", topic="app.events", topic_id="c1/d2")
CREATED = 1540339223000
"""The time of messages: 2018-10-24T00:00:23Z."""


KEY = "p/ab12.log.pv_log/spool/main/app.events/dt=2018-10-24/c1_d2-00000-0000000000000000000-0123456789abcdef.parquet"
"""The key of spool objects, and of plain samples that are to be read as one."""


@dataclass(frozen=True)
class AMessage:
    """A message as `confluent_kafka` returns it."""

    at: int
    content: bytes | None
    its_key: bytes | None = None
    its_headers: Headers | None = None
    of_partition: int = 0
    milliseconds: int | None = CREATED

    def partition(self) -> int:
        return self.of_partition

    def offset(self) -> int:
        return self.at

    def timestamp(self) -> tuple[int, int]:
        return (0, -1) if self.milliseconds is None else (1, self.milliseconds)

    def key(self) -> bytes | None:
        return self.its_key

    def value(self) -> bytes | None:
        return self.content

    def headers(self) -> Headers | None:
        return self.its_headers

    def set_headers(self, headers: list[Any]) -> None:
        object.__setattr__(self, "its_headers", headers)


def a_segment(messages: Sequence[AMessage]) -> Segment:
    first, last = messages[0], messages[-1]
    return Segment(partition=first.of_partition, from_offset=first.at, to_offset=last.at + 1, records=len(messages))


def a_spool_object(*messages: AMessage | bytes | None) -> bytes:
    """A spool object. Bytes and None become messages of partition 0, each with its place as offset."""
    whole = [AMessage(at, item) if not isinstance(item, AMessage) else item for at, item in enumerate(messages)]
    parts = [list(part) for _, part in groupby(whole, AMessage.partition)]
    return encode(ORIGIN, [(a_segment(part), [to_batch(part)] if part else []) for part in parts]).content


def a_topic_stream(form: Format | None = None, *, tombstones: Tombstones = "filter", **more: Any) -> Stream:
    topic = Topic(cluster="main", name="app.events", tombstones=tombstones)
    return Stream(name="events", bucket=topic.bucket, key_prefix=topic.key_prefix, format=form, topic=topic, **more)


def a_topic_table(
    *columns: Column, form: Format | None = None, tombstones: Tombstones = "filter", **more: Any
) -> TableDefinition:
    """A table whose only stream reads a topic."""
    return a_table(*columns, streams=(a_topic_stream(form, tombstones=tombstones),), **more)
