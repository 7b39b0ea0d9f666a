"""How messages for people put things."""

from __future__ import annotations

from collections.abc import Sequence


def counted(count: int, one: str, many: str | None = None) -> str:
    """A number with its noun, and what agrees with that: `1 line`, `2,000 lines`, `1 object is missing`."""
    return f"1 {one}" if count == 1 else f"{count:,} {many or f'{one}s'}"


def listed(items: Sequence[str], most: int) -> str:
    """The first of many items, and how many more there are: `a, b and 3 more`."""
    more = f" and {len(items) - most} more" if len(items) > most else ""
    return ", ".join(items[:most]) + more


def span(seconds: float) -> str:
    """Seconds for people, in the greatest unit that fits: `1.5s`, `15m`, `3h`, `2d`."""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds / size:.3g}{unit}"
    return f"{seconds:.3g}s"
