"""Sums of fingerprints. A fingerprint is a sum modulo 2^64 over rows, written as a signed 64-bit integer."""

from collections.abc import Iterable

_HALF = 1 << 63
_WHOLE = 1 << 64


def combine(values: Iterable[int]) -> int:
    """Returns the fingerprint of all rows from those of their parts, 0 for no parts."""
    return (sum(values) + _HALF) % _WHOLE - _HALF
