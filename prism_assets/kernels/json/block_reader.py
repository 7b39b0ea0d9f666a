"""Chooses the way to read a block: compiled, or line by line. Both ways give the same result."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum, auto

from prism_assets.domain.columns.types import part_count
from prism_assets.kernels.compiled import Kernel, KernelFailed, loaded_kernel, log_failure
from prism_assets.kernels.json.block_rows import BlockRows
from prism_assets.kernels.json.blocks import Block, after, divided
from prism_assets.kernels.json.compiled import CompiledReader
from prism_assets.kernels.json.lines import read_lines
from prism_assets.kernels.typed import Layout

_BUDGET = 160 << 20
_BYTES_OF_VALUE = 8
"""Lines are read in parts whose values take at most the budget, because `{}` has a null for each column."""
_MOST_SLOTS = 4 << 20
"""A part ends with the line whose elements and entries bring it to these slots, because `[{},{},…]` has a null for each
field of each element. So a part takes 32 MiB for them beside its last line.
"""


class Way(Enum):
    """The ways to read, the fastest one first."""

    COMPILED = auto()
    LINES = auto()


class BlockReader:
    """Reads the blocks of one object, by default with the process's kernel if there is one."""

    def __init__(self, layout: Layout, way: Way = Way.COMPILED, kernel: Kernel | None = None) -> None:
        self._layout = layout
        self._compiled = CompiledReader.of(layout, kernel or loaded_kernel()) if way is Way.COMPILED else None
        values = sum(1 + part_count(column.type) for column in layout.columns)
        self._most_lines = max(1, _BUDGET // (_BYTES_OF_VALUE * max(1, values)))

    def read_parts(self, block: Block) -> Iterator[BlockRows]:
        """Reads the lines of a block, few or all at a time. The places of lines are those in the whole block."""
        for start, part in divided(block, self._most_lines):
            rest: Block | None = part
            while rest is not None:
                read = self._read(rest)
                yield read.moved(start + rest.offset - part.offset)
                rest = after(rest, read.lines) if read.is_cut else None

    def _read(self, block: Block) -> BlockRows:
        """Reads lines of a block. A failure of the kernel is logged, and the rest of the object is read without it.

        So a fault of the kernel costs time and no line.
        """
        if self._compiled is not None:
            try:
                return self._compiled.read(block, _MOST_SLOTS)
            except KernelFailed as failure:
                log_failure(f"reads an object from line {block.first_line} on", failure)
                self._compiled = None
        return read_lines(self._layout, block, _MOST_SLOTS)
