"""The framing of schema registries is taken off values by sight."""

from __future__ import annotations

import zlib
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prism_assets.kernels.json.blocks import LINE_LIMIT
from prism_assets.kernels.messages.framing import TooLongError, Unframed, unframed
from prism_assets_tests.kernels.protoc import varint

ID = UUID("b7b4a7f0-9c96-4e4a-a687-fb5de9ef0c63")
CONFLUENT = b"\x00\x00\x00\x01\x02"
GLUE, GLUE_ZLIB = b"\x03\x00" + ID.bytes, b"\x03\x05" + ID.bytes


@given(st.binary(max_size=40))
def test_json_in_a_framing_comes_back_with_the_id_of_its_schema(content: bytes) -> None:
    assert unframed(CONFLUENT + content, is_protobuf=False) == Unframed(content, "258")
    assert unframed(GLUE + content, is_protobuf=False) == Unframed(content, str(ID))
    assert unframed(GLUE_ZLIB + zlib.compress(content), is_protobuf=False) == Unframed(content, str(ID))


@given(st.lists(st.integers(0, 300), max_size=5), st.binary(max_size=40))
def test_confluent_puts_the_path_of_the_message_type_before_protobuf(path: list[int], content: bytes) -> None:
    indexes = b"".join(map(varint, [2 * len(path), *(2 * index for index in path)]))
    assert unframed(CONFLUENT + indexes + content, is_protobuf=True) == Unframed(content, "258")


def test_the_first_message_of_a_file_has_a_path_of_one_byte() -> None:
    assert unframed(CONFLUENT + b"\x00\x08\x07", is_protobuf=True) == Unframed(b"\x08\x07", "258")


@given(st.integers(0, 2**32 - 1), st.binary(max_size=40))
def test_glue_puts_the_number_of_the_message_type_before_protobuf(number: int, content: bytes) -> None:
    inner = varint(number) + content
    assert unframed(GLUE + inner, is_protobuf=True) == Unframed(content, str(ID))
    assert unframed(GLUE_ZLIB + zlib.compress(inner), is_protobuf=True) == Unframed(content, str(ID))


@pytest.mark.parametrize(
    "value",
    [
        b"\x00\x00\x00",
        b"\x03",
        GLUE[:-1],
        b"\x03\x01" + ID.bytes,
        GLUE_ZLIB + b"no zlib",
        GLUE_ZLIB + zlib.compress(b"cut off")[:-3],
    ],
    ids=range(6),
)
def test_bytes_that_are_no_framing_after_all_stay(value: bytes) -> None:
    assert unframed(value, is_protobuf=False) == Unframed(value, None)


@pytest.mark.parametrize("rest", [b"", b"\x03", b"\xfe\x03" + b"\x00" * 200, b"\x04\x02", b"\x80" * 20], ids=range(5))
def test_a_path_that_does_not_end_is_no_framing(rest: bytes) -> None:
    assert unframed(CONFLUENT + rest, is_protobuf=True) == Unframed(CONFLUENT + rest, None)


def test_a_value_of_16_mib_is_decompressed_and_no_longer_one() -> None:
    fits = GLUE_ZLIB + zlib.compress(b"x" * LINE_LIMIT)
    assert len(unframed(fits, is_protobuf=False).content) == LINE_LIMIT
    with pytest.raises(TooLongError):
        unframed(GLUE_ZLIB + zlib.compress(b"x" * (LINE_LIMIT + 1)), is_protobuf=False)


@given(st.binary(max_size=60), st.booleans())
def test_no_bytes_fail(rest: bytes, is_protobuf: bool) -> None:
    for first in (b"\x00", b"\x03", GLUE, GLUE_ZLIB, CONFLUENT):
        content, schema_id = unframed(first + rest, is_protobuf=is_protobuf)
        assert schema_id is not None or content == first + rest
