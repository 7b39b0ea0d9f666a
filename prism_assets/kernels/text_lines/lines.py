"""Divides the lines of one object. Its first line may name the fields; a wrong one leaves all lines without fields."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prism_assets.domain.streams.reasons import BAD_HEADER
from prism_assets.domain.streams.text_lines import MOST_FIELDS, CsvFormat, TextFormat, names_problem
from prism_assets.kernels.compiled import Kernel, loaded_kernel
from prism_assets.kernels.json.blocks import Block, LongLine
from prism_assets.kernels.text_lines.compiled import CompiledDivider
from prism_assets.kernels.text_lines.divider import Divider
from prism_assets.kernels.text_lines.fields import divider_of
from prism_assets.kernels.text_lines.read_fields import EVERY_FIELD, ReadFields

MakeDivider = Callable[[TextFormat, tuple[str, ...] | None, ReadFields], Divider | CompiledDivider]


def make_divider(kernel: Kernel | None = None) -> MakeDivider:
    """Returns the maker of compiled dividers if this process has them, otherwise of those in Python.

    Expressions of RE2 are pyarrow's in both ways.
    """
    module = (kernel or loaded_kernel()).module
    if module is None:
        return Divider

    def make(form: TextFormat, names: tuple[str, ...] | None, read_fields: ReadFields) -> Divider | CompiledDivider:
        if names is None or not isinstance(form, CsvFormat):
            return Divider(form, names, read_fields)
        return CompiledDivider(module, form, names, read_fields)

    return make


def divide_lines(
    parts: Iterable[Block | LongLine],
    form: TextFormat,
    read_fields: ReadFields = EVERY_FIELD,
    note: Callable[[str], object] = lambda reason: None,
    *,
    make: MakeDivider,
) -> Iterator[Block | LongLine]:
    """Divides the lines of one object. `note` hears of a header that names no fields."""
    names: tuple[str, ...] | None = form.columns if isinstance(form, CsvFormat) else ()
    divider, first = None, 1
    for part in parts:
        if divider is None:
            if isinstance(form, CsvFormat) and form.header:
                names, first = _names(form, _first_line(part), read_fields), 2
                if names is None:
                    note(BAD_HEADER)
            divider = make(form, names, read_fields)
        yield part if isinstance(part, LongLine) else divider.divide(part, first)


def _first_line(part: Block | LongLine) -> bytes:
    if isinstance(part, LongLine):
        return b""
    return part.data.partition(b"\n")[0].removesuffix(b"\r")


def _names(form: CsvFormat, header: bytes, read_fields: ReadFields) -> tuple[str, ...] | None:
    """Returns the names in a header, or None if it is none."""
    try:
        names = divider_of(form)(header.decode(), MOST_FIELDS + 1)
    except UnicodeDecodeError:
        return None
    if names is None or names_problem(names) is not None:
        return None
    return tuple(names) if not read_fields.expected or any(name in read_fields.expected for name in names) else None
