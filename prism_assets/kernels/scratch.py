"""Temporary files for data beyond the memory of a task, in the folder TMPDIR, or /tmp.

The files have no name, so even a process that is killed leaves none.
"""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import IO

import pyarrow as pa

from prism_assets.domain.errors import WorkerUnavailable

_MEMORY = 64 << 20


def new_file() -> IO[bytes]:
    """Returns a file to write and then to read."""
    with disk_errors():
        return tempfile.TemporaryFile(prefix="prism-")


def mapped(file: IO[bytes]) -> pa.Buffer:
    """Maps the content of a file into memory, and closes the file. The content goes with the last reference to it."""
    with file, disk_errors():
        file.flush()
        return pa.py_buffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


@contextmanager
def disk_errors() -> Iterator[None]:
    """Raises WorkerUnavailable with the remedy for an error of the disk. Use it around work on temporary files only."""
    try:
        yield
    except OSError as error:
        folder = tempfile.tempdir or "for temporary files"
        raise WorkerUnavailable(
            f"the machine of the worker: the folder {folder} does not take what is too much for memory "
            f"({error.strerror or error}): make room there, or set TMPDIR where tasks run"
        ) from error


def gathered(pieces: Iterable[bytes]) -> pa.Buffer:
    """Returns all bytes of an object: in memory, and on disk beyond 64 MiB."""
    held: list[bytes] = []
    file: IO[bytes] | None = None
    size = 0
    try:
        for piece in pieces:
            held.append(piece)
            size += len(piece)
            if size > _MEMORY:
                file = file or new_file()
                with disk_errors():
                    file.writelines(held)
                held.clear()
        if file is None:
            return pa.py_buffer(b"".join(held))
        return mapped(file)
    except BaseException:
        if file is not None:
            file.close()
        raise
