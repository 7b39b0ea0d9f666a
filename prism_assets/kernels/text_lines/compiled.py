"""The compiled divider of lines at delimiters."""

from __future__ import annotations

from typing import Any

from prism_assets.domain.streams.text_lines import CsvFormat
from prism_assets.kernels.compiled import integers, kernel_panics
from prism_assets.kernels.json.blocks import Block, Lines
from prism_assets.kernels.text_lines.blocks import TextBlock
from prism_assets.kernels.text_lines.divider import Divider
from prism_assets.kernels.text_lines.read_fields import EVERY_FIELD, ReadFields


class CompiledDivider:
    """Gives the same results as the divider in Python."""

    def __init__(self, module: Any, form: CsvFormat, names: tuple[str, ...], read_fields: ReadFields) -> None:
        signs = tuple(ord(sign) if sign else None for sign in (form.delimiter, form.quote, form.escape))
        fields = [(name, read_fields.takes(name)) for name in names]
        self._divide = module.TextDivider(signs, list(form.nulls), fields).divide
        self._whole = Divider(form, names, EVERY_FIELD).whole

    def divide(self, block: Block, first: int) -> TextBlock:
        """Returns the lines of a block from number `first` on as JSON lines. Raises KernelFailed."""
        with kernel_panics():
            found = self._divide(block.data, block.first_line, first)
        divided = TextBlock(
            data=found.json,
            first_line=block.first_line,
            offset=block.offset,
            content=block.data,
            lines=Lines(integers(found.starts), integers(found.ends), integers(found.numbers)),
            whole=self._whole,
        )
        return divided.without(found.broken)
