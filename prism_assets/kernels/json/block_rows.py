"""The rows of one block, as both ways of reading return them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from prism_assets.kernels.columns import Indices
from prism_assets.kernels.json.blocks import Lines
from prism_assets.kernels.json.rows import Reject
from prism_assets.kernels.json.undefined import UndefinedFields
from prism_assets.kernels.typed import TypedRows


@dataclass(frozen=True)
class BlockRows:
    """The result of one block."""

    lines: Lines
    parts: list[TypedRows]
    """Rows."""
    rejects: list[Reject]
    """Lines to quarantine."""
    compiled: int
    """How many lines the compiled kernel read."""
    undefined: UndefinedFields
    """Fields of well-formed lines without a column."""
    elsewhere: Indices = field(default_factory=lambda: np.zeros(0, np.int64))
    """Positions of lines that belong to other tables. They are neither rows nor rejects."""
    is_cut: bool = False
    """Whether reading ended after the last of `lines`, because the values so far fill their memory."""

    def moved(self, start: int) -> BlockRows:
        """Returns the rows of a block that begins at `start` in a larger one, with the places of lines there."""
        if not start:
            return self
        lines = self.lines
        return replace(self, lines=Lines(lines.starts + start, lines.ends + start, lines.numbers))
