"""Keeps rows by slice: a single slice in memory, several in temporary files."""

from __future__ import annotations

from typing import IO

import numpy as np
import pyarrow as pa

from prism_assets.kernels.records.sessions import Numbers
from prism_assets.kernels.scratch import disk_errors, mapped, new_file


class Spool:
    """Rows of one schema, in slices. Each slice is taken once."""

    def __init__(self, schema: pa.Schema, slices: int) -> None:
        self._schema = schema
        self._slices = slices
        self._rows: dict[int, list[pa.Table]] = {}
        self._files: dict[int, tuple[IO[bytes], pa.ipc.RecordBatchFileWriter]] = {}

    def add(self, rows: pa.Table, slices: Numbers) -> None:
        """Puts each row into its slice."""
        for number in np.unique(slices).tolist():
            self.add_to(number, rows if self._slices == 1 else rows.filter(pa.array(slices == number)))

    def add_to(self, number: int, rows: pa.Table) -> None:
        """Appends rows to a slice."""
        if self._slices == 1:
            self._rows.setdefault(number, []).append(rows)
            return
        if number not in self._files:
            file = new_file()
            self._files[number] = file, pa.ipc.new_file(pa.PythonFile(file, "w"), self._schema)
        with disk_errors():
            self._files[number][1].write_table(rows)

    def close(self) -> None:
        """Closes the files of slices that were not taken."""
        for file, writer in self._files.values():
            writer.close()
            file.close()
        self._files.clear()

    def take(self, number: int) -> pa.Table:
        """The rows of a slice, in the order they were added. Rows on disk are mapped, and read on access."""
        if number not in self._files:
            return pa.concat_tables([self._schema.empty_table(), *self._rows.pop(number, [])])
        file, writer = self._files.pop(number)
        with disk_errors():
            writer.close()
        return pa.ipc.open_file(mapped(file)).read_all()
