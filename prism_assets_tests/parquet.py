"""The rows of a Parquet object that a test has as bytes."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq


def read_parquet(body: bytes, columns: Sequence[str] | None = None) -> pa.Table:
    """All rows, read by the thread that asks alone.

    `pyarrow.parquet.read_table` hands a file of Python's to the threads of a pool. The last of them to let go of it
    asks for the interpreter's lock, and where the interpreter is just ending, that aborts the process.
    """
    return pq.ParquetFile(pa.BufferReader(body)).read(columns, use_threads=False)
