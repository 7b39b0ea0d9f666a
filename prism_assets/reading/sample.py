"""A few rows of a day as a reader of the catalog gets them, for people to look at."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from prism_assets.domain.errors import InvariantBroken
from prism_assets.objectstore.store_errors import unclear
from prism_assets.reading.lake_reader import LakeReader, path_of

_BUFFER_BYTES = 64 << 10


@dataclass(frozen=True)
class Sample:
    """Column names, and rows in the order of the columns."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]


def read_sample(reader: LakeReader, table: str, day: date, most: int) -> Sample | None:
    """The first rows of the smallest object of a day, at most so many; None where readers find no object.

    Reads page by page: of a big object only the first pages of each column. PrismError as for any reader.
    """
    objects = [item for partition in reader.table(table, day).partitions for item in partition.objects]
    if not objects:
        return None
    path = path_of(min(objects, key=lambda item: item.content_length).url)
    try:
        with reader.filesystem.open_input_file(path) as file:
            parquet = pq.ParquetFile(file, buffer_size=_BUFFER_BYTES, pre_buffer=False)
            batch = next(parquet.iter_batches(batch_size=most, use_threads=False), None)
    except pa.ArrowInvalid as error:
        raise InvariantBroken(f"s3://{path} is no sound Parquet object: {error}") from error
    except OSError as error:
        raise unclear(f"s3://{path}", path.partition("/")[0], str(error)) from error
    if batch is None:
        return None
    return Sample(tuple(batch.schema.names), tuple(tuple(row.values()) for row in batch.to_pylist()))
