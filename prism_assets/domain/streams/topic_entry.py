"""Reads the keys of a stream in a table file that name a topic of Kafka."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, timezone
from typing import cast

import yaml

from prism_assets.domain.streams.stream import DocumentFormat, ParquetFormat, Stream
from prism_assets.domain.streams.text_lines import CsvFormat
from prism_assets.domain.streams.topic import (
    CLUSTER,
    DEFAULT_CLUSTER,
    EARLIEST,
    FLUSH_BYTES,
    FLUSH_SECONDS,
    LATEST,
    SPOOL_DAYS,
    TOMBSTONES,
    TOPIC,
    Tombstones,
    Topic,
    time_of_start,
)
from prism_assets.domain.tables.file_keys import known_keys
from prism_assets.domain.tables.yaml_mapping import YamlMapping, plain

_ONLY_TOPICS = ("cluster", "start", "tombstones", "spool_days", "flush")
_ONLY_PREFIXES: Mapping[str, str] = {
    "url": "must not stand beside `topic`: a stream reads a prefix in S3, or a topic of Kafka",
    "include": "has no meaning for a topic, which has messages and no keys; write `keep` for rows to read",
    "exclude": "has no meaning for a topic, which has messages and no keys; write `keep` for rows to read",
    "since": "is the first day of keys, and messages have none; write `start`",
    "route": "divides a prefix between tables; each table reads a topic by itself, so write `keep` in each of them",
}
_WANTED_START = f"must be {EARLIEST}, {LATEST}, or a time with its offset, such as 2026-11-01T00:00:00Z"


def read_topic(stream: YamlMapping) -> Topic | None:
    """Reads `topic` and its companions. Returns None for a stream of S3."""
    if "topic" not in stream.children:
        for key in _ONLY_TOPICS:
            stream.refuse(key, "has an effect beside `topic` only, which names a topic of Kafka")
        return None
    for key, why in _ONLY_PREFIXES.items():
        stream.refuse(key, why)
    if stream.flag("discard", False):
        stream.complain("discard", "is for objects in S3; write `enabled: false`, and no message is read")
    flush = stream.mapping("flush")
    flush.only(known_keys("streams[].flush"))
    return Topic(
        cluster=_cluster(stream),
        name=_name(stream),
        start=_start(stream),
        tombstones=cast(Tombstones, stream.choice("tombstones", TOMBSTONES[0])),
        spool_days=stream.number("spool_days", SPOOL_DAYS),
        flush_seconds=flush.amount("seconds", FLUSH_SECONDS),
        flush_bytes=flush.size("bytes", FLUSH_BYTES),
    )


def refuse_format(entry: YamlMapping, stream: Stream) -> None:
    """Reports a format of objects, which messages cannot have."""
    if stream.topic is None:
        return
    if isinstance(stream.format, DocumentFormat):
        entry.complain("format", "has `records`, and a message of a topic is one record; write `format: json`")
    elif isinstance(stream.format, ParquetFormat):
        entry.complain("format", "is parquet, and a message of a topic is one record; write `format: json`")
    elif isinstance(stream.format, CsvFormat) and stream.format.header:
        entry.complain("format", "has `header: true`, and messages have no first line; name the fields in `columns`")


def _name(stream: YamlMapping) -> str:
    name: str = stream.text("topic", "") or ""
    if not TOPIC.fullmatch(name):
        stream.complain("topic", "must be the name of a topic: a-z, A-Z, 0-9, ., _ and -, at most 249 characters")
    return name


def _cluster(stream: YamlMapping) -> str:
    cluster: str = stream.text("cluster", DEFAULT_CLUSTER)
    if not CLUSTER.fullmatch(cluster):
        stream.complain("cluster", "must begin with a-z and hold only a-z, 0-9 and _, at most 32 characters")
    return cluster


def _start(stream: YamlMapping) -> str:
    """Returns the start; a time in UTC, so that one time has one text."""
    node = stream.children.get("start")
    # YAML makes a date or a time of text without quotes.
    text = node.value if isinstance(node, yaml.ScalarNode) and isinstance(plain(node), date) else None
    start: str = text if text is not None else stream.text("start", EARLIEST) or ""
    if start in (EARLIEST, LATEST):
        return start
    try:
        return time_of_start(start).astimezone(timezone.utc).isoformat()
    except ValueError:
        stream.complain("start", _WANTED_START)
        return EARLIEST
