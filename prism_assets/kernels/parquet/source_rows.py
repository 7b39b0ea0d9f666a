"""Reads Parquet files of other writers. Each row becomes a line of JSON for the readers of lines.

Rows therefore have a ledger, quarantine, drift and erasures like all lines. The number of a line is the row's number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from prism_assets.domain.errors import UnsupportedContent
from prism_assets.kernels.inflate import RATIO_FLOOR
from prism_assets.kernels.parquet.json_texts import TEXT, json_texts, name_text
from prism_assets.kernels.scratch import gathered

_PIECE = 4 << 20
"""Bytes of text in memory. A longer row is made alone."""
_MOST_ROWS = 16_384
"""Most rows of one decoded batch."""
_SAMPLE_ROWS = 64
"""Rows that tell how long a decoded row is."""
_MOST_NESTED_ROWS = 1_024
"""Most rows of one decoded batch with nested columns: Arrow decodes each of their texts, also one of many rows."""
_MOST_GROWTH = 2_000
"""Bytes of text for each byte of a file, beyond `RATIO_FLOOR`, which any file may have."""


def lines_of_rows(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yields the rows of a file in order as lines of JSON, in pieces of about 4 MiB.

    The file is in memory, and on disk beyond 64 MiB. Dictionaries of texts stay dictionaries, so memory holds a long
    text of many rows once. Raises UnsupportedContent for other content, for a damaged file, for types without a form in
    JSON, and for a file that grows too much.
    """
    content = gathered(pieces)
    if not content.size:
        return
    most, made = max(RATIO_FLOOR, _MOST_GROWTH * content.size), 0
    for piece in _pieces(content):
        made += len(piece)
        if made > most:
            raise UnsupportedContent(
                f"its rows are more than {_MOST_GROWTH:,} times as long as the file: leave such keys out with "
                "`exclude` of the stream"
            )
        yield piece


def _pieces(content: pa.Buffer) -> Iterator[bytes]:
    with _telling_damage():
        file = _open(content, ())
        names = [field.name for field in file.schema_arrow if _is_text(field.type)]
        if names:
            file = _open(content, names)
    for number in range(file.num_row_groups):  # one by one, as Arrow joins no nested dictionaries of two groups
        group = file.metadata.row_group(number)
        with _telling_damage():
            batches = file.iter_batches(_rows_at_once(file, number), row_groups=[number], use_threads=False)
        left = group.num_rows
        while left:
            with _telling_damage():
                batch = next(batches, None)
                if batch is None:  # it passes over rows of lists after an empty page
                    raise ValueError(f"Arrow reads {group.num_rows - left} of {group.num_rows} rows of a row group")
            left -= batch.num_rows
            for part in _parts(batch):
                with _telling_damage():
                    texts = _Texts(part)
                yield from texts.pieces()


def _open(content: pa.Buffer, dictionaries: Sequence[str]) -> pq.ParquetFile:
    """Opens a file. Nanoseconds, the default for INT96, hold no year before 1678 or after 2261."""
    return pq.ParquetFile(
        pa.BufferReader(content),
        page_checksum_verification=True,
        read_dictionary=list(dictionaries),
        coerce_int96_timestamp_unit="us",
    )


def _rows_at_once(file: pq.ParquetFile, number: int) -> int:
    """Returns the rows of a row group that have about 4 MiB, by its encoded size and by its first rows."""
    group = file.metadata.row_group(number)
    nested = any(pa.types.is_nested(field.type) for field in file.schema_arrow)
    most, size = _MOST_ROWS, group.total_byte_size
    if nested:
        most = _MOST_NESTED_ROWS
        for sample in islice(file.iter_batches(_SAMPLE_ROWS, row_groups=[number], use_threads=False), 1):
            size = max(size, _decoded_bytes(sample) * group.num_rows // max(1, sample.num_rows))
    return max(1, min(most, int(_PIECE * group.num_rows // max(1, size))))


def _parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Divides rows into parts whose values, without dictionaries, have about 4 MiB."""
    if batch.num_rows > 1 and _decoded_bytes(batch) > _PIECE:
        half = batch.num_rows // 2
        yield from _parts(batch.slice(0, half))
        yield from _parts(batch.slice(half))
    else:
        yield batch


def _decoded_bytes(batch: pa.RecordBatch) -> int:
    """Returns the bytes of the values of rows. Dictionaries do not count, as slices share them."""
    return sum(column.nbytes for column in batch.columns if not isinstance(column, pa.DictionaryArray))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


class _Texts:
    """The values of some rows as texts of JSON, by column. Dictionaries stay dictionaries until a piece is made."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._count = batch.num_rows
        self._names = [name_text(name) for name in batch.schema.names]
        self._columns = [_as_dictionary(column) for column in batch.columns]

    def pieces(self) -> Iterator[bytes]:
        """Yields the rows as lines. Each piece has whole lines."""
        if not self._names:
            yield b"{}\n" * self._count
            return
        ends = np.cumsum(sum((_lengths(column) for column in self._columns), np.zeros(self._count, np.int64)))
        start, before = 0, 0
        while start < self._count:
            stop = max(start + 1, int(np.searchsorted(ends, before + _PIECE, side="right")))
            yield self._lines(start, stop - start)
            start, before = stop, int(ends[stop - 1])

    def _lines(self, start: int, count: int) -> bytes:
        parts: list[pa.Array | pa.Scalar] = []
        for name, column in zip(self._names, self._columns, strict=True):
            parts.append(pa.scalar((b"," if parts else b"{") + name + b":", TEXT))
            part = column.slice(start, count)
            parts.append(part.dictionary.take(part.indices) if isinstance(part, pa.DictionaryArray) else part)
        lines = pc.binary_join_element_wise(*parts, pa.scalar(b"}\n", TEXT), pa.scalar(b"", TEXT))
        _, offsets, content = lines.buffers()
        bounds = np.frombuffer(offsets, np.int64)[lines.offset :]
        return bytes(content[int(bounds[0]) : int(bounds[len(lines)])])


def _as_dictionary(column: pa.Array) -> pa.Array:
    """Returns texts without null. The dictionary of a column of texts has one more entry, for null."""
    if not isinstance(column, pa.DictionaryArray):
        return json_texts(column)
    entries = pa.concat_arrays([json_texts(column.dictionary), pa.array([b"null"], TEXT)])
    indices = column.indices.cast(pa.int64()).fill_null(len(column.dictionary))
    return pa.DictionaryArray.from_arrays(indices, entries)


def _lengths(column: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    if isinstance(column, pa.DictionaryArray):
        return np.asarray(_lengths(column.dictionary)[column.indices.to_numpy()], np.int64)
    return np.asarray(pc.binary_length(column).to_numpy(), np.int64)


@contextmanager
def _telling_damage() -> Iterator[None]:
    try:
        yield
    except (MemoryError, UnsupportedContent):  # Arrow's own MemoryError is an ArrowException, too
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise UnsupportedContent(
            f"it is no sound file of Parquet ({reason}): write it again, or leave such keys out with `exclude` of the "
            "stream"
        ) from None
