"""Formats numbers, lists and durations for messages."""

from __future__ import annotations

from collections.abc import Sequence


def counted(count: int, one: str, many: str | None = None) -> str:
    """Returns a number with its noun and agreeing words: `1 line`, `2,000 lines`, `1 object is missing`."""
    return f"1 {one}" if count == 1 else f"{count:,} {many or f'{one}s'}"


def listed(items: Sequence[str], most: int) -> str:
    """Returns the first items and the number of further ones: `a, b and 3 more`."""
    more = f" and {len(items) - most} more" if len(items) > most else ""
    return ", ".join(items[:most]) + more


def span(seconds: float) -> str:
    """Returns seconds in the greatest unit that fits: `1.5s`, `15m`, `3h`, `2d`."""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds / size:.3g}{unit}"
    return f"{seconds:.3g}s"
