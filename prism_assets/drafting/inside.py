"""Surveys keys inside the structs of a table that no field reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from prism_assets.domain.columns.column import Column
from prism_assets.domain.columns.parts import path_below
from prism_assets.domain.columns.types import ColumnType, ListType, StructType
from prism_assets.domain.streams.sources import Key, Path, key_and_steps, sources_of
from prism_assets.domain.streams.survey import KeyEvidence
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.tables.drift import PlacedKey
from prism_assets.kernels.json.picks import elements_of, value_inside
from prism_assets.kernels.json.rows import EVERY_KEY, NOTHING, Fields, RejectedError, Value, read_line, read_object
from prism_assets.kernels.json.survey import MOST_ELEMENTS, Counting

_Steps = tuple[str | None, ...]
"""Keys from a column's value to a struct, and None for every element of an array."""


def survey_inside(
    lines: Iterable[bytes], table: TableDefinition, wanted: Sequence[PlacedKey]
) -> dict[PlacedKey, KeyEvidence]:
    """Returns the evidence of each wanted key in the structs of a table.

    Values around records are not looked at, so their keys have no evidence.
    """
    found = {place: KeyEvidence(key=place[1]) for place in wanted}
    paths = {within for within, _ in wanted}
    places = [place for place in _places(table) if place[1] in paths]
    counting = Counting()
    for line in lines:
        try:
            fields = read_line(line, EVERY_KEY)
            for column, path, steps in places:
                for _, raw in _structs_in(_value_of(column, fields), steps):
                    for key, value in read_object(raw, 1, EVERY_KEY).items():
                        if (path, key) in found:
                            counting.count(found[path, key], value)
        except RejectedError:
            continue
    return found


def _places(table: TableDefinition) -> Iterator[tuple[Column, str, _Steps]]:
    """Yields the columns with structs, and the paths and the ways to them. Streams may read a column differently."""
    columns = {
        (column.name, column.source, column.sources): column for item in table.readings for column in item.columns
    }
    for column in columns.values():
        for path, steps in _ways(column.name, column.type, ()):
            yield column, path, steps


def _ways(path: str, kind: ColumnType, steps: _Steps) -> Iterator[tuple[str, _Steps]]:
    if isinstance(kind, StructType):
        yield path, steps
        for part in kind.fields:
            yield from _ways(path_below(path, kind, part), part.type, (*steps, part.source or part.name))
    elif isinstance(kind, ListType):
        yield from _ways(path_below(path, kind, kind.element), kind.element.type, (*steps, None))


def _value_of(column: Column, fields: Fields) -> Value:
    for source in sources_of(column):
        if isinstance(source, Key | Path):
            key, steps = key_and_steps(source)
            found = value_inside(fields.get(key, NOTHING), steps, column.name)
            if found[0] is not None:
                return found
    return NOTHING


def _structs_in(found: Value, steps: _Steps) -> Iterator[Value]:
    value, raw = found
    if not steps:
        if isinstance(value, dict):
            yield found
        return
    step, *rest = steps
    if step is None:
        elements = islice(elements_of(raw), MOST_ELEMENTS) if isinstance(value, list) else ()
        for element in elements:
            yield from _structs_in(element, tuple(rest))
    elif isinstance(value, dict):
        yield from _structs_in(read_object(raw, 1, {step: step}).get(step, NOTHING), tuple(rest))
