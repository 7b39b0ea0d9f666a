"""Rows of Parquet as lines of JSON: exact for every type, in bounded pieces, and one sentence for a damaged file."""

from __future__ import annotations

import datetime
import io
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from prism_assets.domain.errors import UnsupportedContent
from prism_assets.kernels.parquet.source_rows import lines_of_rows

UTC = datetime.timezone.utc
AT = datetime.datetime(2026, 3, 1, 9, 30, 0, 123456)
SMALL = pa.struct([("a", pa.int32()), ("b\n", pa.list_(pa.string()))])


def a_file(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def read(content: bytes, cut: int = 1 << 20) -> list[bytes]:
    pieces = lines_of_rows(content[at : at + cut] for at in range(0, len(content), cut))
    return b"".join(pieces).splitlines()


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (pa.bool_(), True, "true"),
        (pa.int8(), -128, "-128"),
        (pa.int64(), 2**63 - 1, "9223372036854775807"),
        (pa.uint64(), 2**64 - 1, "18446744073709551615"),
        (pa.float64(), 0.1, "0.1"),
        (pa.float64(), 1e300, "1e+300"),
        (pa.float64(), float("inf"), "Infinity"),
        (pa.float64(), float("nan"), "NaN"),
        (pa.float32(), 0.5, "0.5"),
        (pa.float32(), 0.1, "0.10000000149011612"),
        (pa.decimal128(38, 10), Decimal("1234567890123456789.0123456789"), "1234567890123456789.0123456789"),
        (pa.decimal128(9, 2), Decimal("-0.10"), "-0.10"),
        (pa.string(), 'a "b" \\ \n\x00\t é 😀', r'"a \"b\" \\ \u000a\u0000\u0009 é 😀"'),
        (pa.large_string(), "x", '"x"'),
        (pa.binary(), b"text", '"text"'),
        (pa.binary(), b"\xff\x00", '"/wA="'),
        (pa.binary(2), b"\xff\x00", '"/wA="'),
        (pa.date32(), datetime.date(2026, 3, 1), '"2026-03-01"'),
        (pa.timestamp("us"), AT, '"2026-03-01T09:30:00.123456"'),
        (pa.timestamp("us", "UTC"), AT.replace(tzinfo=UTC), '"2026-03-01T09:30:00.123456Z"'),
        (pa.timestamp("ms", "Asia/Tokyo"), AT.replace(tzinfo=UTC), '"2026-03-01T09:30:00.123Z"'),
        (pa.timestamp("ns", "UTC"), AT.replace(tzinfo=UTC), '"2026-03-01T09:30:00.123456000Z"'),
        (pa.time64("us"), datetime.time(9, 30, 0, 5), '"09:30:00.000005"'),
        (SMALL, {"a": 1, "b\n": ["x", None]}, r'{"a":1,"b\n":["x",null]}'),
        (SMALL, {"a": None, "b\n": None}, r'{"a":null,"b\n":null}'),
        (pa.list_(pa.list_(pa.int64())), [[1, None], [], None], "[[1,null],[],null]"),
        (pa.large_list(pa.date32()), [datetime.date(2026, 3, 1)], '["2026-03-01"]'),
        (pa.list_(pa.int64(), 2), [1, 2], "[1,2]"),
        (pa.map_(pa.string(), SMALL), [('k"', {"a": 1, "b\n": []})], r'{"k\"":{"a":1,"b\n":[]}}'),
        (pa.map_(pa.int32(), pa.bool_()), [(7, False)], '{"7":false}'),
        (pa.dictionary(pa.int32(), pa.string()), "x", '"x"'),
    ],
)  # fmt: skip
def test_each_type_has_an_exact_text(kind: pa.DataType, value: Any, text: str) -> None:
    """Values stand between nulls and in the second row group, where offsets do not begin at 0."""
    column = pa.array([None, value, None, value, value, None], kind)
    lines = read(a_file(pa.table({"n": range(6), "v": column}), row_group_size=3))
    null, full = '"v":null}', f'"v":{text}}}'
    assert [line.decode() for line in lines] == [
        f'{{"n":{number},{part}' for number, part in enumerate([null, full, null, full, full, null])
    ]
    if "NaN" not in text:
        assert all(json.loads(line)["n"] == number for number, line in enumerate(lines))


def test_a_file_without_bytes_rows_or_columns_has_no_line_or_empty_objects() -> None:
    assert read(b"") == []
    assert read(a_file(pa.table({"v": pa.array([], pa.string())}))) == []
    assert read(a_file(pa.table({"n": [1]}).select([]))) in ([], [b"{}"])


def test_bytes_of_a_text_that_are_no_utf8_stay_as_they_are() -> None:
    """The reader of lines sets such a line aside, with its bytes."""
    text = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"\xff\xfe")])
    assert read(a_file(pa.table({"v": text}), store_schema=False)) == [b'{"v":"\xff\xfe"}']


def test_one_long_text_in_many_rows_is_not_held_for_all_of_them() -> None:
    """20,000 rows of a megabyte come from a file of a few kilobytes."""
    column = pa.DictionaryArray.from_arrays(pa.array([0] * 20_000, pa.int32()), ["x" * (1 << 20)])
    content = a_file(pa.table({"v": column}))
    assert len(content) < 3 << 20
    before = pa.total_allocated_bytes()
    pieces = lines_of_rows([content])
    for _ in range(3):
        piece = next(pieces)
        assert len(piece) <= 5 << 20
        assert piece.endswith(b'x"}\n')
        assert pa.total_allocated_bytes() - before < 64 << 20


@pytest.mark.parametrize("year", [1, 1500, 1970, 9999])
def test_int96_holds_every_year(year: int) -> None:
    told = datetime.datetime(year, 12, 31, 23, 59, 59, 123456)
    content = a_file(pa.table({"at": pa.array([told], pa.timestamp("us"))}), use_deprecated_int96_timestamps=True)
    assert read(content) == [b'{"at":"%s"}' % told.isoformat().encode()]


def test_a_long_text_of_many_nested_rows_is_decoded_for_a_few_rows_at_once() -> None:
    """Arrow decodes nested texts whole: the rows of this file of 1 kB have 60 MB."""
    texts = pa.array([{"text": "x" * 20_000}] * 3_000, pa.struct([("text", pa.string())]))
    content = a_file(pa.table({"nested": texts}))
    del texts
    before = peak = pa.total_allocated_bytes()
    count = 0
    for piece in lines_of_rows([content]):
        count += piece.count(b"\n")
        peak = max(peak, pa.total_allocated_bytes())
    assert count == 3_000
    assert peak - before < 32 << 20


def test_a_file_that_grows_without_measure_is_refused() -> None:
    content = a_file(pa.table({"constant": pa.array([7] * 20_000_000, pa.int8())}))
    with pytest.raises(UnsupportedContent, match="its rows are more than 2,000 times as long as the file"):
        list(lines_of_rows([content]))


def test_pieces_hold_all_rows_in_order() -> None:
    table = pa.table({"n": range(70_000), "v": [f"{number % 7}" * 200 for number in range(70_000)]})
    lines = read(a_file(table, row_group_size=30_000), cut=1 << 16)
    assert [json.loads(line)["n"] for line in lines[::9_999]] == list(range(70_000))[::9_999]
    assert len(lines) == 70_000


@pytest.mark.parametrize("content", [b"PAR", b"PAR1", b'{"a": 1}\n'])
def test_other_bytes_are_no_file_of_parquet(content: bytes) -> None:
    with pytest.raises(UnsupportedContent, match="no sound file of Parquet"):
        read(content)


def test_a_file_that_ends_early_or_is_damaged_gives_one_sentence() -> None:
    content = a_file(pa.table({"v": [str(number) for number in range(1000)]}), write_page_checksum=True)
    for broken in (content[:-20], content[:100] + bytes([content[100] ^ 255]) + content[101:]):
        with pytest.raises(UnsupportedContent, match="no sound file of Parquet"):
            read(broken)


def test_a_type_without_a_form_in_json_is_told() -> None:
    with pytest.raises(UnsupportedContent, match=r"type duration\[us\]"):
        read(a_file(pa.table({"v": pa.array([1], pa.duration("us"))})))


def test_rows_that_arrow_passes_over_are_no_loss_without_a_word() -> None:
    """Arrow writes an empty page before the list, and then reads no row of it."""
    column = pa.array([[1]], pa.list_(pa.int32()))
    with pytest.raises(UnsupportedContent, match="Arrow reads 0 of 1 rows of a row group"):
        read(a_file(pa.table({"v": column}), data_page_size=1))


def test_lists_of_dictionaries_are_read_across_row_groups() -> None:
    column = pa.array([["a"], ["b", None]] * 5, pa.list_(pa.dictionary(pa.int32(), pa.string())))
    lines = read(a_file(pa.table({"v": column}), row_group_size=3))
    assert lines == [b'{"v":["a"]}', b'{"v":["b",null]}'] * 5
