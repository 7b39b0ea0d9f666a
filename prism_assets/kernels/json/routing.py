"""Decides whether a line belongs to the table that reads it, where several tables read a prefix.

The decision needs the line alone, so that each table of a group decides alike. The compiled kernel must agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from prism_assets.domain.streams.routes import Route
from prism_assets.domain.streams.sources import key_and_steps
from prism_assets.kernels.json.picks import value_inside
from prism_assets.kernels.json.rows import NOTHING, RejectedError, read_line
from prism_assets.kernels.typed import Mask
from prism_assets.kernels.values import Number


def own_lines(route: Route | None, lines: Sequence[bytes]) -> Mask:
    """Returns a mask of the lines that belong to the table: all of them without a route."""
    if route is None or route.field is None:
        return np.ones(len(lines), bool)
    return np.array([route.takes_value(routed_value(route, line)) for line in lines], bool)


def routed_value(route: Route, line: bytes) -> str | None:
    """Returns the value that decides about a line, as text, or None for a line without a readable one.

    Readable is a text, a number as written, true or false, in a well-formed line that has each key of the path once.
    """
    if route.field is None:
        return None
    key, steps = key_and_steps(route.field)
    try:
        value, raw = value_inside(read_line(line, {key: ""}).get(key, NOTHING), steps, "")
    except RejectedError:
        return None
    return _text(value, raw)


def _text(value: Any, raw: str) -> str | None:
    if type(value) is str:
        return value
    return raw if type(value) in (bool, Number) else None
