"""Small pictures for metadata: SVG in a data URI, shown by Dagster's UI in Markdown."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Sequence
from datetime import date

from dagster import MarkdownMetadataValue, MetadataValue

from prism_assets.domain.text import counted

_STEP = 4
_SMALLEST = 1 << 12
_BINS = 10
_UNITS = (("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10))
_WIDTH, _ROW, _LEFT, _LABELS = 460, 70, 64, 34
_BEFORE, _AFTER = "#b8b5d9", "#4f43dd"


def sizes_picture(before: Sequence[int], after: Sequence[int]) -> MarkdownMetadataValue:
    """Returns histograms of object sizes in bytes before and after a merge. Each class is four times the previous."""
    body = _row("before", before, 0, _BEFORE) + _row("after", after, 1, _AFTER) + _axis()
    height = 2 * _ROW + _LABELS
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" font-family="sans-serif" '
        f'font-size="10"><rect width="{_WIDTH}" height="{height}" fill="#fff"/>{body}</svg>'
    )
    data = base64.b64encode(svg.encode()).decode()
    return MetadataValue.md(f"![object sizes before and after the merge](data:image/svg+xml;base64,{data})")


def days_picture(days: Sequence[tuple[date, int]]) -> MarkdownMetadataValue:
    """Returns the rows of successive days as bars, the newest to the right."""
    most = max((rows for _, rows in days), default=0) or 1
    width = max(4, min(24, (_WIDTH - 8) // max(len(days), 1)))
    base = _ROW + 12
    bars = "".join(
        f'<rect x="{4 + index * width}" y="{base - (height := round(_ROW * rows / most))}" width="{width - 1}" '
        f'height="{height}" fill="{_AFTER}"><title>{day}: {rows:,} rows</title></rect>'
        for index, (day, rows) in enumerate(days)
    )
    ends = f"{days[0][0]} to {days[-1][0]}, at most {most:,} rows" if days else "no days"
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{base + 20}" font-family="sans-serif" '
        f'font-size="10"><rect width="{_WIDTH}" height="{base + 20}" fill="#fff"/>{bars}'
        f'<path d="M4 {base}H{_WIDTH - 4}" stroke="#999"/><text x="4" y="{base + 14}">{ends}</text></svg>'
    )
    data = base64.b64encode(svg.encode()).decode()
    return MetadataValue.md(f"![rows by day](data:image/svg+xml;base64,{data})")


def size_class(size: int) -> int:
    """Returns the class number of a size, from 0. The last class takes everything bigger."""
    number, bound = 0, _SMALLEST
    while size >= bound and number < _BINS - 1:
        number, bound = number + 1, bound * _STEP
    return number


def _row(name: str, sizes: Sequence[int], number: int, color: str) -> str:
    counts = Counter(map(size_class, sizes))
    most = max(counts.values(), default=1)
    base = (number + 1) * _ROW
    bars = "".join(_bar(index, count, most, base, color) for index, count in sorted(counts.items()))
    objects = counted(len(sizes), "object")
    label = f'<text x="4" y="{base - 24}">{name}</text><text x="4" y="{base - 10}">{objects}</text>'
    return f'{label}{bars}<path d="M{_LEFT} {base}H{_WIDTH - 4}" stroke="#999"/>'


def _bar(index: int, count: int, most: int, base: int, color: str) -> str:
    height = max(2, round((_ROW - 18) * count / most))
    left = _LEFT + index * _bin_width()
    return (
        f'<rect x="{left + 1}" y="{base - height}" width="{_bin_width() - 2}" height="{height}" fill="{color}"/>'
        f'<text x="{left + _bin_width() // 2}" y="{base - height - 3}" text-anchor="middle">{count}</text>'
    )


def _axis() -> str:
    y = 2 * _ROW + 14
    marks = "".join(
        f'<text x="{_LEFT + (index + 1) * _bin_width()}" y="{y}" text-anchor="middle">{_bound(index)}</text>'
        for index in range(_BINS - 1)
    )
    return f'{marks}<text x="{_LEFT}" y="{y + 14}">bytes of one object</text>'


def _bin_width() -> int:
    return (_WIDTH - _LEFT - 4) // _BINS


def _bound(index: int) -> str:
    """Returns the upper limit of a class."""
    size = _SMALLEST * _STEP**index
    unit, divisor = next((unit, divisor) for unit, divisor in _UNITS if size >= divisor)
    return f"{size // divisor} {unit}"
