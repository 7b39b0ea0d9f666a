"""The format of spool objects."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timezone

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prism_assets.domain.errors import InvariantBroken, PrismError, UnsupportedContent
from prism_assets.kernels.messages.spool_file import ROW_GROUP_BYTES, Headers, Segment, SpoolFile, encode, to_batch
from prism_assets_tests.kernels.messages.builders import CREATED, ORIGIN, AMessage, a_segment, a_spool_object

HEADERS = st.none() | st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=3)
MESSAGES = st.builds(
    AMessage,
    st.just(0),
    st.none() | st.binary(max_size=9),
    st.none() | st.binary(max_size=9),
    HEADERS,
    st.integers(0, 3),
    st.none() | st.integers(0, 4102444800000),
)


@given(st.lists(MESSAGES, min_size=1, max_size=12))
def test_messages_come_back_to_the_byte(messages: list[AMessage]) -> None:
    read = [row for group in _opened(a_spool_object(*messages)).row_groups() for row in group.to_pylist()]
    assert read == [
        {
            "partition": message.of_partition,
            "offset": 0,
            "timestamp": _instant(message.milliseconds),
            "key": message.its_key,
            "value": message.content,
            "headers": _as_read(message.its_headers),
        }
        for message in messages
    ]


def test_the_footer_names_the_topic_and_the_segments() -> None:
    first, second = [AMessage(5, b"{}"), AMessage(9, None)], [AMessage(70, b"{}", of_partition=3)]
    quiet = Segment(partition=4, from_offset=12, to_offset=14, records=0)
    body = encode(
        ORIGIN, [(a_segment(first), [to_batch(first)]), (quiet, []), (a_segment(second), [to_batch(second)])]
    ).content
    spool = _opened(body)
    assert spool.origin == ORIGIN
    assert spool.segments == (
        Segment(partition=0, from_offset=5, to_offset=10, records=2),
        quiet,
        Segment(partition=3, from_offset=70, to_offset=71, records=1),
    )


def test_a_segment_counts_its_messages() -> None:
    with pytest.raises(ValueError, match="has 1 messages"):
        encode(
            ORIGIN, [(Segment(partition=0, from_offset=0, to_offset=9, records=2), [to_batch([AMessage(0, b"{}")])])]
        )


def test_a_row_group_has_4_mib_and_a_long_message_its_own() -> None:
    short, long = b"x" * (1 << 20), b"x" * (2 * ROW_GROUP_BYTES)
    groups = _opened(a_spool_object(*[short] * 7, long, short)).row_groups()
    assert [group.num_rows for group in groups] == [3, 3, 1, 1, 1]


def test_tombstones_and_keys_count_for_row_groups() -> None:
    tombstones = [AMessage(at, None, b"k" * (1 << 20)) for at in range(7)]
    assert max(group.num_rows for group in _opened(a_spool_object(*tombstones)).row_groups()) == 3


def test_headers_may_be_a_mapping() -> None:
    (group,) = _opened(a_spool_object(AMessage(0, b"{}", None, {"trace": "é"}))).row_groups()
    assert group.column("headers").to_pylist() == [[{"key": "trace", "value": "é".encode()}]]


class _BadName(AMessage):
    """A message with a header whose name is no UTF-8, as confluent-kafka returns it."""

    def headers(self) -> Headers | None:
        if self.its_headers is None:
            raise SystemError("<method 'headers'> returned a result with an exception set")
        return self.its_headers


def test_a_header_with_a_name_that_is_no_text_stops_nothing() -> None:
    """A flush that is repeated encodes the same message again."""
    messages = [_BadName(0, b"{}"), AMessage(1, b"{}", None, [("x", b"1")])]
    first, again = a_spool_object(*messages), a_spool_object(*messages)
    assert again == first
    (group,) = _opened(again).row_groups()
    assert group.column("headers").to_pylist() == [[], [{"key": "x", "value": b"1"}]]


@given(st.data())
def test_one_flipped_byte_is_never_read_as_a_message(data: st.DataObject) -> None:
    body = a_spool_object(*(b'{"n":%d}' % number for number in range(50)))
    place = data.draw(st.integers(0, len(body) - 1))
    damaged = body[:place] + bytes([body[place] ^ 0xFF]) + body[place + 1 :]
    sound = [group.to_pylist() for group in _opened(body).row_groups()]
    with suppress(PrismError):
        assert [group.to_pylist() for group in _opened(damaged).row_groups()] == sound


def test_a_cut_object_is_told() -> None:
    with pytest.raises(InvariantBroken, match="damaged spool object"):
        _opened(a_spool_object(b"{}")[:-9])


def test_another_file_of_parquet_is_no_spool_object() -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"a": [1]}), sink)
    with pytest.raises(UnsupportedContent, match="no spool object of a topic"):
        SpoolFile.open(sink.getvalue())


def test_duckdb_reads_a_spool_object(tmp_path: object) -> None:
    path = f"{tmp_path}/spool.parquet"
    with open(path, "wb") as file:
        file.write(a_spool_object(AMessage(7, b'{"a":1}', b"k", [("h", b"v")])))
    query = f"SELECT \"offset\", epoch_ms(timestamp), decode(value), headers[1].key FROM '{path}'"
    with duckdb.connect() as session:
        assert session.execute(query).fetchall() == [(7, CREATED, '{"a":1}', "h")]


def _opened(body: bytes) -> SpoolFile:
    return SpoolFile.open(pa.py_buffer(body))


def _as_read(headers: Headers | None) -> list[dict[str, object]] | None:
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return None if pairs is None else [{"key": name, "value": value} for name, value in pairs]


def _instant(milliseconds: int | None) -> datetime | None:
    return None if milliseconds is None else datetime.fromtimestamp(milliseconds / 1000, timezone.utc)
