"""Chooses the way to read a block: compiled, by columns, or line by line. All ways give the same result."""

from __future__ import annotations

import logging
from enum import Enum, auto

from prism_assets.kernels.compiled import Kernel, loaded_kernel
from prism_assets.kernels.json import columnar
from prism_assets.kernels.json.block_rows import BlockRows
from prism_assets.kernels.json.blocks import Block
from prism_assets.kernels.json.columnar import Hints
from prism_assets.kernels.json.compiled import CompiledReader, KernelFailed
from prism_assets.kernels.typed import Layout

_LOG = logging.getLogger(__name__)


class Way(Enum):
    """The ways to read, the fastest one first."""

    COMPILED = auto()
    COLUMNS = auto()
    LINES = auto()


class BlockReader:
    """Reads the blocks of one object in the first possible way from `way` on, by default with the process's kernel."""

    def __init__(self, layout: Layout, way: Way = Way.COMPILED, kernel: Kernel | None = None) -> None:
        self._layout = layout
        self._by_columns = way is not Way.LINES
        self._compiled = CompiledReader.of(layout, kernel or loaded_kernel()) if way is Way.COMPILED else None
        self._hints = Hints()

    def read(self, block: Block) -> BlockRows:
        """Reads the lines of a block. A failure of the kernel is logged, and the rest of the object is read without it.

        So a fault of the kernel costs time and no line.
        """
        if self._compiled is not None:
            try:
                return self._compiled.read(block)
            except KernelFailed as failure:
                _LOG.warning("Python reads an object from line %d on: %s", block.first_line, failure)
                self._compiled = None
        return columnar.read_block(self._layout, block, self._hints, by_columns=self._by_columns)
