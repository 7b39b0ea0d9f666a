"""Objects of unsupported formats give one sentence each and no line. Text that only resembles one is read."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zipfile
from collections.abc import Callable

import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet
import pytest
import zstandard

from prism_assets.domain.errors import UnsupportedContent
from prism_assets.kernels.foreign_formats import check_format
from prism_assets.kernels.inflate import Inflation
from prism_assets_tests.kernels.builders import Lake, a_column, a_table, an_object

TABLE = a_table(a_column("v", "string", 2))
CONTENT = an_object(*({"v": f"value {number}"} for number in range(2000)))
LEAVE_OUT = "or leave such keys out with `exclude` of the stream"
NO_JSON = f"and no JSON: write it again with one JSON object a line, {LEAVE_OUT}"
ITS_FORMAT = f"and no JSON: write `format: parquet` below the stream, {LEAVE_OUT}"
ONLY_TWICE = (
    "which is not read, as only gzip is read within another layer, and only once: have its writer compress once, and "
    f"write it again, {LEAVE_OUT}"
)
COMPRESSED = "which is not read: write it again plain, with gzip or with zstd"


def zipped(content: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a.json", content)
    return file.getvalue()


def file_of(write: Callable[[pa.Table, io.BytesIO], None]) -> bytes:
    file = io.BytesIO()
    write(pa.table({"v": ["a", "b"]}), file)
    return file.getvalue()


PARQUET, ORC = file_of(pyarrow.parquet.write_table), file_of(pyarrow.orc.write_table)
AVRO = b'Obj\x01\x04\x16avro.schema\x0c"null"\x14avro.codec\x08null\x00'
SNAPPY = b"\xff\x06\x00\x00sNaPpY\x01\x08\x00\x00abcdefgh"
LZ4 = b"\x04\x22\x4d\x18\x64\x40\xa7"
ONCE = gzip.compress(CONTENT, mtime=0)
TWICE = gzip.compress(ONCE, mtime=0)
THRICE = gzip.compress(TWICE, mtime=0)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (bz2.compress(CONTENT), f"it is compressed with bzip2, {COMPRESSED}, {LEAVE_OUT}"),
        (bz2.compress(b""), f"it is compressed with bzip2, {COMPRESSED}, {LEAVE_OUT}"),
        (lzma.compress(CONTENT), f"it is compressed with xz, {COMPRESSED}, {LEAVE_OUT}"),
        (zipped(CONTENT), f"it is compressed with zip, {COMPRESSED}, {LEAVE_OUT}"),
        (SNAPPY, f"it is compressed with snappy, {COMPRESSED}, {LEAVE_OUT}"),
        (LZ4, f"it is compressed with lz4, {COMPRESSED}, {LEAVE_OUT}"),
        (gzip.compress(bz2.compress(CONTENT)), f"it is compressed with bzip2 within gzip, {COMPRESSED}, {LEAVE_OUT}"),
        (PARQUET, f"it is a file of Parquet, {ITS_FORMAT}"),
        (
            gzip.compress(PARQUET),
            f"it is a file of Parquet within gzip, {ITS_FORMAT}",
        ),
        (ORC, f"it is a file of ORC, {NO_JSON}"),
        (AVRO, f"it is a file of Avro, {NO_JSON}"),
        (
            THRICE,
            f"it is gzip within gzip within gzip, {ONLY_TWICE}",
        ),
        (
            gzip.compress(zstandard.compress(CONTENT)),
            f"it is zstd within gzip, {ONLY_TWICE}",
        ),
        (gzip.compress(gzip.compress(PARQUET)), f"it is a file of Parquet within gzip within gzip, {ITS_FORMAT}"),
    ],
)
def test_an_object_of_another_format_is_told_as_such_and_none_of_its_bytes_is_a_line(
    lake: Lake, content: bytes, sentence: str
) -> None:
    outcome = lake.convert(content, TABLE)
    failure = outcome.result.failure
    assert failure is not None
    assert (outcome.stored, outcome.reasons, failure.transient, failure.at_source) == ({}, {}, False, True)
    assert failure.message == f"s3://staging/in/7.json: {sentence}"


@pytest.mark.parametrize(
    "text", [b"BZh is a codec", b"PAR1 is over", b"ORC\tand others", b"PKZIP", b"", b"7z", b"Obj 1"]
)
@pytest.mark.parametrize("outer", [None, "gzip"])
def test_text_that_begins_like_a_magic_number_is_text(text: bytes, outer: str | None) -> None:
    check_format(text + b"\n", outer)


@pytest.mark.parametrize("cut", [1, 3, 7])
def test_a_format_is_told_however_its_bytes_arrive(cut: int) -> None:
    with pytest.raises(UnsupportedContent, match="gzip within gzip within gzip"):
        list(Inflation(THRICE[at : at + cut] for at in range(0, len(THRICE), cut)))
    xz = lzma.compress(CONTENT)
    with pytest.raises(UnsupportedContent, match="xz"):
        list(Inflation(xz[at : at + cut] for at in range(0, len(xz), cut)))


def test_binary_content_may_begin_with_any_bytes() -> None:
    """A message of protobuf of 80 bytes begins with the letter P."""
    assert b"".join(Inflation([PARQUET], binary=True)) == PARQUET
    assert b"".join(Inflation([TWICE], binary=True)) == ONCE
