"""Draws the picture of README: the way of a row from a service to a reader, for light and for dark pages."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

_WIDTH, _HEIGHT = 960, 330
_FONT = "system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif"


@dataclass(frozen=True, kw_only=True)
class Palette:
    """The colours of one picture."""

    text: str
    faint: str
    line: str
    box: str
    accent: str


@dataclass(frozen=True, kw_only=True)
class _Box:
    """A box with a title and lines below it."""

    x: int
    y: int
    width: int
    height: int
    title: str
    lines: tuple[str, ...]


LIGHT = Palette(text="#1f2328", faint="#59636e", line="#8c959f", box="#f6f8fa", accent="#0969da")
DARK = Palette(text="#e6edf3", faint="#9198a1", line="#6e7681", box="#161b22", accent="#58a6ff")

_BOXES = (
    _Box(x=10, y=96, width=150, height=84, title="Staging objects", lines=("JSON lines in S3,", "gzip or zstd")),
    _Box(
        x=270, y=96, width=150, height=84, title="Small objects", lines=("Parquet, readable", "within a minute")
    ),
    _Box(
        x=530, y=96, width=150, height=84, title="Merged objects", lines=("128 MiB, even,", "sorted by time")
    ),
    _Box(
        x=800, y=44, width=150, height=148, title="Readers",
        lines=("Redshift Spectrum", "Athena, Trino", "Spark, Iceberg", "DuckDB, DuckLake", "prism query"),
    ),
    _Box(x=270, y=226, width=150, height=66, title="Quarantine", lines=("lines with reasons",)),
)  # fmt: skip
_STAGES = (
    (215, 128, "Stream"),
    (475, 128, "Merge"),
    (740, 128, "Catalog"),
)
_ARROWS = (
    "M160 138 H262",
    "M420 138 H522",
    "M680 138 H792",
    "M345 96 V62 H792",
    "M345 180 V218",
)
_NOTES = (
    (570, 52, "open day: the live prefix"),
    (740, 162, "closed day:"),
    (740, 178, "a manifest"),
    (480, 312, "PostgreSQL holds the truth, Spark does the work, Dagster starts and shows each step"),
)


def picture(palette: Palette) -> str:
    """The SVG in the colours of a palette."""
    arrows = "".join(
        f'<path d="{path}" fill="none" stroke="{palette.line}" stroke-width="1.5" marker-end="url(#head)"/>\n'
        for path in _ARROWS
    )
    boxes = "".join(_drawn_box(box, palette) for box in _BOXES)
    stages = "".join(_text(x, y, title, palette.accent, size=14, weight=600) for x, y, title in _STAGES)
    notes = "".join(_text(x, y, note, palette.faint, size=12) for x, y, note in _NOTES)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" '
        f'height="{_HEIGHT}" role="img" font-family="{_FONT}">\n'
        "<title>From JSON lines in S3 to readers</title>\n"
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        f'<path d="M0 0 L8 4 L0 8 z" fill="{palette.line}"/></marker></defs>\n'
        f"{arrows}{boxes}{stages}{notes}</svg>\n"
    )


def _drawn_box(box: _Box, palette: Palette) -> str:
    middle = box.x + box.width // 2
    frame = (
        f'<rect x="{box.x}" y="{box.y}" width="{box.width}" height="{box.height}" rx="8" fill="{palette.box}" '
        f'stroke="{palette.line}"/>\n'
    )
    title = _text(middle, box.y + 26, box.title, palette.text, size=15, weight=600)
    lines = "".join(
        _text(middle, box.y + 48 + 20 * number, line, palette.faint, size=13) for number, line in enumerate(box.lines)
    )
    return frame + title + lines


def _text(x: int, y: int, text: str, colour: str, *, size: int, weight: int = 400) -> str:
    return (
        f'<text x="{x}" y="{y}" font-size="{size}" font-weight="{weight}" fill="{colour}" text-anchor="middle">'
        f"{escape(text)}</text>\n"
    )
