"""How messages for people put things."""

from __future__ import annotations


def counted(count: int, what: str) -> str:
    """A number with its noun: `1 line`, `2,000 lines`."""
    return f"1 {what}" if count == 1 else f"{count:,} {what}s"
