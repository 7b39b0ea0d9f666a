"""The file format of spool objects: messages of a topic in Parquet, with their offsets in the footer.

A row is a message as the broker holds it: the bytes of key, value and headers are kept. The footer names the topic and
the segments. A segment is a range of offsets of one partition that was read completely: it may have fewer messages than
offsets, because transaction markers, aborted messages and compacted ones are none.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from prism_assets.domain.errors import InvariantBroken, UnsupportedContent
from prism_assets.kernels.scratch import gathered

MAGIC = b"PAR1"
"""The first bytes of a spool object. No JSON, CSV or text of logs begins so."""
FOOTER = b"prism.spool"
"""The key in the footer."""
SCHEMA = pa.schema(
    [
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("ms", "UTC")),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)
ROW_GROUP_BYTES = 4 << 20
"""The most bytes of messages in a row group. A longer message has a row group of its own."""
_VERSION = 1
_MESSAGE_COST = 64
"""Bytes that a message takes beside key, value and headers. It bounds row groups of empty messages."""
_NO_TIMESTAMP = 0
"""Kafka's type of messages without a time, from before 0.10."""
_HEADER = SCHEMA.field("headers").type.value_type

Headers = Mapping[str, str | bytes | None] | Sequence[tuple[str, str | bytes | None]]


class Message(Protocol):
    """A message as `confluent_kafka.Message` has it."""

    def partition(self) -> int | None:
        """The partition."""
        ...

    def offset(self) -> int | None:
        """The offset."""
        ...

    def timestamp(self) -> tuple[int, int]:
        """The type of the time, and milliseconds since 1970."""
        ...

    def key(self) -> bytes | None:
        """The bytes of the key."""
        ...

    def value(self) -> bytes | None:
        """The bytes of the value. A message without one is a tombstone."""
        ...

    def headers(self) -> Headers | None:
        """Names and values, in the order of the producer."""
        ...

    def set_headers(self, headers: list[Any]) -> None:
        """Replaces the headers."""
        ...


@dataclass(frozen=True, kw_only=True)
class Segment:
    """The offsets from `from_offset` to before `to_offset` of a partition, all read."""

    partition: int
    from_offset: int
    to_offset: int
    records: int


@dataclass(frozen=True, kw_only=True)
class SpoolOrigin:
    """The topic whose messages a spool object holds."""

    cluster: str
    """The name of the connection."""
    cluster_id: str
    """The id that the brokers gave the cluster."""
    topic: str
    topic_id: str
    """The id that the brokers gave the topic. A recreated topic has another id."""


@dataclass(frozen=True)
class Encoded:
    """The bytes of a spool object, and the first and the last time of each segment in milliseconds since 1970."""

    content: bytes
    times: tuple[tuple[int, int] | None, ...]
    """None for a segment whose messages have no time."""


def to_batch(messages: Sequence[Message]) -> pa.RecordBatch:
    """Returns messages of one partition as columns, so that the client's objects need not be kept.

    All messages are of one class. For each message only the methods of that class run: a method of the class takes a
    fifth of the time of one that is looked up in each message.
    """
    kind = type(messages[0])
    headers = _headers_of_all(messages)
    # A list of the client's pairs would start the garbage collector again and again.
    times = [None if known == _NO_TIMESTAMP or time < 0 else time for known, time in map(kind.timestamp, messages)]
    columns = [
        pa.array(np.full(len(messages), messages[0].partition(), np.int32)),
        pa.array(list(map(kind.offset, messages)), pa.int64()),
        pa.array(times, pa.timestamp("ms", "UTC")),
        pa.array(list(map(kind.key, messages)), pa.binary()),
        pa.array(list(map(kind.value, messages)), pa.binary()),
        _headers_array([_pairs(pairs) for pairs in headers] if any(headers) else headers),
    ]
    return pa.record_batch(columns, schema=SCHEMA)


def encode(origin: SpoolOrigin, segments: Sequence[tuple[Segment, Sequence[pa.RecordBatch]]]) -> Encoded:
    """Returns the spool object of some segments, each with its messages in the order of offsets.

    ValueError if a segment counts other messages than it has.
    """
    for segment, batches in segments:
        count = sum(batch.num_rows for batch in batches)
        if segment.records != count:
            raise ValueError(f"{segment} has {count} messages")
    described = {"version": _VERSION, **vars(origin), "segments": [vars(segment) for segment, _ in segments]}
    schema = SCHEMA.with_metadata({FOOTER: json.dumps(described).encode()})
    messages = pa.Table.from_batches([batch for _, batches in segments for batch in batches], SCHEMA).combine_chunks()
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink,
        schema,
        compression="zstd",
        compression_level=1,
        use_dictionary=["partition"],
        column_encoding={"offset": "DELTA_BINARY_PACKED", "timestamp": "DELTA_BINARY_PACKED"},
        write_statistics=False,
        write_page_checksum=True,
    ) as writer:
        described_messages = messages.replace_schema_metadata(schema.metadata)
        for start, stop in _groups(_sizes(messages)):
            writer.write_table(described_messages.slice(start, stop - start), row_group_size=stop - start)
    return Encoded(sink.getvalue().to_pybytes(), tuple(_times(messages, [segment for segment, _ in segments])))


def _sizes(messages: pa.Table) -> npt.NDArray[np.int64]:
    """Returns the bytes of key, value and headers of each message."""
    count = messages.num_rows
    sizes: npt.NDArray[np.int64] = np.zeros(count, np.int64)
    for name in ("key", "value"):
        sizes += pc.fill_null(pc.binary_length(messages[name]), 0).to_numpy()
    pairs = messages["headers"].combine_chunks()
    if len(entries := pairs.flatten()):
        of_entries = pc.fill_null(pc.binary_length(entries.field("value")), 0).to_numpy(zero_copy_only=False)
        parents = pc.list_parent_indices(pairs).to_numpy()
        sizes += np.bincount(parents, weights=of_entries, minlength=count).astype(np.int64)
    return sizes


def _times(messages: pa.Table, segments: Sequence[Segment]) -> Iterator[tuple[int, int] | None]:
    times, start = messages["timestamp"].cast(pa.int64()), 0
    for segment in segments:
        bounds = pc.min_max(times.slice(start, segment.records))
        start += segment.records
        first, last = bounds["min"].as_py(), bounds["max"].as_py()
        yield None if first is None else (first, last)


def _groups(sizes: npt.NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Yields the first and the last place, exclusive, of each row group."""
    ends = np.cumsum(sizes + _MESSAGE_COST)
    start, before = 0, 0
    while start < len(sizes):
        stop = max(start + 1, int(np.searchsorted(ends, before + ROW_GROUP_BYTES, side="right")))
        yield start, stop
        start, before = stop, int(ends[stop - 1])


def _headers_of_all(messages: Sequence[Message]) -> list[Headers | None]:
    """Returns the headers of each message, none of them if the name of one is no UTF-8.

    confluent-kafka 2.16 then raises SystemError, and at the next call returns a tuple that ends the process.
    """
    found: list[Headers | None] = []
    asked = map(type(messages[0]).headers, messages)
    while len(found) < len(messages):
        try:
            found.extend(asked)  # those before an error stay in the list
        except (SystemError, UnicodeDecodeError):
            messages[len(found)].set_headers([])
            found.append([])
    return found


def _pairs(headers: Headers | None) -> Sequence[tuple[str, str | bytes | None]] | None:
    return list(headers.items()) if isinstance(headers, Mapping) else headers


def _headers_array(headers: Sequence[Any]) -> pa.Array:
    if not any(headers):
        filled: list[list[str] | None] = [None if pairs is None else [] for pairs in headers]
        return pa.array(filled, SCHEMA.field("headers").type)
    flat = [pair for pairs in headers for pair in pairs or ()]
    ends = np.cumsum([0, *(len(pairs or ()) for pairs in headers)], dtype=np.int32)
    entries = pa.StructArray.from_arrays(
        [pa.array([name for name, _ in flat], pa.string()), pa.array([text for _, text in flat], pa.binary())],
        fields=list(_HEADER),
    )
    missing = pa.array([pairs is None for pairs in headers], pa.bool_())
    return pa.ListArray.from_arrays(pa.array(ends), entries, mask=missing)


@dataclass(frozen=True)
class SpoolFile:
    """An opened spool object."""

    origin: SpoolOrigin
    segments: tuple[Segment, ...]
    _file: pq.ParquetFile

    @classmethod
    def open(cls, content: pa.Buffer) -> SpoolFile:
        """Opens the bytes of a spool object.

        UnsupportedContent for other files of Parquet. InvariantBroken for a damaged one.
        """
        with _telling_damage():
            file = pq.ParquetFile(pa.BufferReader(content), page_checksum_verification=True)
            described = (file.schema_arrow.metadata or {}).get(FOOTER)
        if described is None:
            raise UnsupportedContent(
                "it is a file of Parquet, and no spool object of a topic: write it again with one JSON object a line, "
                "or delete it"
            )
        with _telling_damage():
            read = json.loads(described)
            version, parts = read.pop("version"), read.pop("segments")
        if version != _VERSION:
            raise UnsupportedContent("a later version of prism-assets has written it: read it with that version")
        with _telling_damage():
            if not file.schema_arrow.equals(SCHEMA):
                raise ValueError("its columns are other ones")
            spool = cls(SpoolOrigin(**read), tuple(Segment(**part) for part in parts), file)
            if file.metadata.num_rows != sum(segment.records for segment in spool.segments):
                raise ValueError("its footer counts other messages")
        return spool

    def row_groups(self) -> Iterator[pa.Table]:
        """Yields the messages in pieces of about 4 MiB. InvariantBroken for damaged bytes."""
        for number in range(self._file.metadata.num_row_groups):
            with _telling_damage():
                group = self._file.read_row_group(number, use_threads=False)
            yield group


def spool_file_of(chunks: Iterable[bytes]) -> tuple[SpoolFile | None, Iterator[bytes]]:
    """Opens an object if it is a spool object. Otherwise returns its bytes, for readers of lines.

    The bytes of a spool object are in memory, and on disk beyond 64 MiB.
    """
    pieces = iter(chunks)
    head = b""
    for piece in pieces:
        head += piece
        if len(head) >= len(MAGIC):
            break
    if not head.startswith(MAGIC):
        return None, chain([head], pieces)
    return SpoolFile.open(gathered(chain([head], pieces))), iter(())


@contextmanager
def _telling_damage() -> Iterator[None]:
    try:
        yield
    except MemoryError:  # Arrow's own is an ArrowException, too
        raise
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
        reason = str(error).partition("\n")[0]
        raise InvariantBroken(
            f"it is a damaged spool object ({reason}): restore an earlier version of the object, and retry it"
        ) from None
