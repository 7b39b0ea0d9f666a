"""Reads a few rows of some objects for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from prism_assets.domain.errors import InvariantBroken
from prism_assets.objectstore.store_errors import unclear
from prism_assets.reading.lake_reader import open_filesystem, path_of
from prism_assets.settings import ReaderSettings

_BUFFER_BYTES = 64 << 10
_SECONDS = 5


@dataclass(frozen=True)
class Sample:
    """Column names, and rows in column order."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]


def read_sample(settings: ReaderSettings, columns: Sequence[str], urls: Sequence[str], most: int) -> Sample:
    """Returns the first rows of some objects, at most `most`. Columns missing from an object are null.

    Reads page by page, so of a big object only the first pages of each column. Requests time out after a few seconds
    and are not retried. Raises InvariantBroken for an object that is no Parquet, and errors of the object store.
    """
    filesystem = open_filesystem(settings, request_seconds=_SECONDS, repeat=False)
    rows = (row for url in urls for row in _rows(filesystem, path_of(url), columns, most))
    return Sample(tuple(columns), tuple(islice(rows, most)))


def _rows(filesystem: fs.FileSystem, path: str, columns: Sequence[str], most: int) -> Iterator[tuple[Any, ...]]:
    try:
        with filesystem.open_input_file(path) as file:
            parquet = pq.ParquetFile(file, buffer_size=_BUFFER_BYTES, pre_buffer=False)
            there = [name for name in columns if name in parquet.schema_arrow.names]
            batch = next(parquet.iter_batches(batch_size=most, columns=there, use_threads=False), None)
    except pa.ArrowException as error:
        raise InvariantBroken(f"s3://{path} is no sound Parquet object: {error}") from error
    except OSError as error:
        raise unclear(f"s3://{path}", path.partition("/")[0], str(error)) from error
    for row in batch.to_pylist() if batch else []:
        yield tuple(row.get(name) for name in columns)
