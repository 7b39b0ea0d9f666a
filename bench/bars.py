"""Draws horizontal bars as SVG, for light and for dark pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

_FONT = "system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif"
_WIDTH, _NAMES, _ROOM, _ROW, _TOP = 760, 270, 90, 26, 44


@dataclass(frozen=True)
class Bar:
    """One bar. Ours has the accent's colour."""

    name: str
    value: float
    is_ours: bool = False


@dataclass(frozen=True)
class Palette:
    """The colours of one picture."""

    text: str
    faint: str
    bar: str
    accent: str


LIGHT = Palette(text="#1f2328", faint="#59636e", bar="#afb8c1", accent="#0969da")
DARK = Palette(text="#e6edf3", faint="#9198a1", bar="#484f58", accent="#58a6ff")


@dataclass(frozen=True)
class Panel:
    """Bars of one unit with a heading."""

    heading: str
    bars: tuple[Bar, ...]

    @property
    def height(self) -> int:
        return _ROW * len(self.bars) + 34


def bar_chart(title: str, label: str, bars: Sequence[Bar]) -> str:
    """Returns one panel on a light ground, for a report."""
    return panels(title, (Panel(label, tuple(bars)),), LIGHT, ground="#ffffff")


def panels(title: str, parts: Sequence[Panel], palette: Palette, ground: str | None = None) -> str:
    """Returns panels one below the other, each with a scale of its own from 0."""
    height = _TOP + sum(part.height for part in parts) + 6
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" font-family="{_FONT}" '
        f'font-size="13" role="img" aria-label="{escape(title)}">'
    ]
    if ground:
        lines.append(f'<rect width="{_WIDTH}" height="{height}" fill="{ground}"/>')
    lines.append(_text(12, 26, title, palette.text, 'font-size="16" font-weight="600"'))
    top = _TOP
    for part in parts:
        lines += _panel(part, top, palette)
        top += part.height
    return "\n".join([*lines, "</svg>"]) + "\n"


def _panel(part: Panel, top: int, palette: Palette) -> list[str]:
    longest = max((bar.value for bar in part.bars), default=0.0) or 1.0
    lines = [_text(12, top + 16, part.heading, palette.faint)]
    for number, bar in enumerate(part.bars):
        y = top + 26 + number * _ROW
        width = max(1.0, bar.value / longest * (_WIDTH - _NAMES - _ROOM))
        fill = palette.accent if bar.is_ours else palette.bar
        lines.append(_text(_NAMES - 10, y + 13, bar.name, palette.text, 'text-anchor="end"'))
        lines.append(f'<rect x="{_NAMES}" y="{y}" width="{width:.1f}" height="18" rx="3" fill="{fill}"/>')
        lines.append(_text(round(_NAMES + width + 6), y + 13, f"{bar.value:,.3g}", palette.text))
    return lines


def _text(x: int, y: int, words: str, fill: str, more: str = "") -> str:
    return f'<text x="{x}" y="{y}" fill="{fill}" {more}>'.replace(" >", ">") + f"{escape(words)}</text>"
