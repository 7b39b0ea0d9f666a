"""Temporary files for what is too much for memory. They have no name: however the process ends, none is left behind.

They lie in the folder that TMPDIR names, or /tmp.
"""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

import pyarrow as pa

from prism_assets.domain.errors import WorkerUnavailable


def new_file() -> IO[bytes]:
    """A file to write and then to read."""
    with telling():
        return tempfile.TemporaryFile(prefix="prism-")


def mapped(file: IO[bytes]) -> pa.Buffer:
    """What a file holds, read when it is looked at, and closes the file. The bytes go when nobody holds them."""
    with file, telling():
        file.flush()
        return pa.py_buffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


@contextmanager
def telling() -> Iterator[None]:
    """Makes errors of the disk say what to do. Around work on temporary files alone."""
    try:
        yield
    except OSError as error:
        folder = tempfile.tempdir or "for temporary files"
        raise WorkerUnavailable(
            f"the machine of the worker: the folder {folder} does not take what is too much for memory "
            f"({error.strerror or error}): make room there, or set TMPDIR where tasks run"
        ) from error
