"""Reads the rows of a Parquet object from bytes."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq


def read_parquet(body: bytes, columns: Sequence[str] | None = None) -> pa.Table:
    """Returns all rows, read by the calling thread alone.

    `pyarrow.parquet.read_table` hands a Python file to the threads of a pool. The last thread to release it takes the
    interpreter's lock. If the interpreter is just ending, this aborts the process.
    """
    return pq.ParquetFile(pa.BufferReader(body)).read(columns, use_threads=False)
