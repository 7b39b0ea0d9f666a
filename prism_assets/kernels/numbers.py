"""Exact numbers from their text: none passes through a double, and no exponent makes a huge integer.

`of_single` is the exception: it finds the digits of a number of single precision.
"""

from __future__ import annotations

import re

import numpy as np

MOST_DIGITS = 40
"""The most digits of an integer: more than any column type holds."""

_NUMBER = re.compile(r"(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?)(\d+))?", re.ASCII)
# More digits than any line has: an exponent of this length decides alone.
_EXPONENT_DIGITS = 18


def scaled(text: str, shift: int = 0) -> tuple[int | None, bool]:
    """Returns the integer part of a number × 10^shift, and whether the number has no other part.

    None if the integer part has more than 40 digits. `text` is a JSON number, also with leading zeros.
    """
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise ValueError("no number")
    sign, whole, fraction, exponent_sign, exponent = match.groups(default="")
    digits = (whole + fraction).lstrip("0")
    if not digits:
        return 0, True
    point = len(digits) - len(fraction) + _signed(exponent_sign, exponent) + shift
    if point > MOST_DIGITS:
        return None, False
    number = int(digits[:point].ljust(point, "0")) if point > 0 else 0
    return -number if sign else number, not digits[max(point, 0) :].strip("0")


def _signed(sign: str, digits: str) -> int:
    digits = digits.lstrip("0")
    size = int(digits or "0") if len(digits) <= _EXPONENT_DIGITS else 10**_EXPONENT_DIGITS
    return -size if sign == "-" else size


def of_single(number: float) -> float:
    """Returns the shortest double that single precision rounds to this number: 0.29 for 0.28999999165534973.

    Whole numbers stay unchanged.
    """
    return number if number.is_integer() else float(str(np.float32(number)))
