"""Documents of JSON: the way from a document to its records, and to keys around the records."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

_STEP = re.compile(r'\.(?P<key>[^.\[\]"]+)|(?P<every>\[\*\])|\[(?P<quoted>"(?:[^"\\]|\\.)*")\]')
_MOST_STEPS = 16
_HALF_PAIR = re.compile("[\ud800-\udfff]")

RecordSteps = tuple[str | None, ...]
"""Keys, and None for every element of an array."""
OuterSteps = tuple[str | int, ...]
"""Keys, and positions in arrays from 0."""


@dataclass(frozen=True, order=True)
class OuterKey:
    """A key beside the way to the records: the value of `key` in the object at place `step` of the way."""

    step: int
    key: str


def record_steps(text: str) -> RecordSteps:
    """Returns the steps of `records` in a table file. Raises ValueError for anything but keys and `[*]`."""
    if not text.startswith("$"):
        raise ValueError(f"{text} must begin with $, the document; paths look like $.Records[*]")
    steps: list[str | None] = []
    position = 1
    while position < len(text):
        step = _STEP.match(text, position)
        if step is None:
            raise ValueError(
                f'{text} is no path at its character {position + 1}; it takes keys and [*], as in $.logs[*]["a b"]'
            )
        steps.append(_step(step))
        position = step.end()
    if len(steps) > _MOST_STEPS:
        raise ValueError(f"{text} has {len(steps)} steps, and at most {_MOST_STEPS} are taken")
    return tuple(steps)


def _step(step: re.Match[str]) -> str | None:
    if step["every"]:
        return None
    return step["key"] or quoted_key(step["quoted"])


def quoted_key(quoted: str) -> str:
    """Returns the key that a path has in quotes. Raises ValueError for a key that no sound document has."""
    try:
        key = str(json.loads(quoted))
    except ValueError:
        raise ValueError(f"{quoted} is no JSON text") from None
    if _HALF_PAIR.search(key):
        raise ValueError(f"{quoted} names half a surrogate pair, and so no character: no record has this key")
    return key


def outer_key(steps: RecordSteps, outer: OuterSteps) -> tuple[OuterKey, OuterSteps]:
    """Returns the key where a path leaves the way to the records, and the steps inside its value.

    The path goes through the elements that hold the record, so it names no `[*]`. Raises ValueError for a path that
    does not leave the way.
    """
    if all(step is None for step in steps):
        raise ValueError("no object lies around its records")
    place = 0
    for number, step in enumerate(outer):
        while place < len(steps) and steps[place] is None:
            place += 1
        if place == len(steps):
            raise ValueError("it leads into the record: write $ for $outer")
        if isinstance(step, int):
            raise ValueError("it names a position in an array on the way to the records: leave the position out")
        if step != steps[place]:
            return OuterKey(place, step), outer[number + 1 :]
        place += 1
    raise ValueError("it is the way to the records itself")
