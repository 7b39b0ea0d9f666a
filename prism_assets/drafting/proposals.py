"""Proposes cases for a table from a sample: lines with their current results, for review."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from prism_assets.domain.errors import WrongUse
from prism_assets.domain.streams.reasons import TOO_NEW, TOO_OLD
from prism_assets.domain.streams.sources import Outer
from prism_assets.domain.streams.stream import DocumentFormat, Format
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.tables.row_program import RowProgram
from prism_assets.drafting.cases import SUFFIX, Case, convert_cases, secret_of_name, text_of, with_outer
from prism_assets.drafting.sample_lines import find_objects
from prism_assets.drafting.trial import first_lines, placed, try_objects
from prism_assets.kernels.inflate import Inflation, UnsoundError
from prism_assets.kernels.json.blocks import Block, find_lines
from prism_assets.kernels.json.head import FirstLines
from prism_assets.kernels.json.rows import RejectedError, Value, read_line
from prism_assets.kernels.trial import ELSEWHERE, FILTERED, ROW, ObjectTrial
from prism_assets.objectstore.config import StoreConfig

_BY_ARRIVAL = (TOO_OLD, TOO_NEW)


def propose_cases(config: StoreConfig, table: TableDefinition, place: str, *, now: datetime, most: int) -> list[str]:
    """Returns lines for a file of cases: the sample's first `most` rows, and one line for each other fate.

    Raises WrongUse if a column is sensitive, because cases show whole lines.
    """
    if sensitive := sorted(RowProgram.of(table).sensitive):
        raise WrongUse(
            f"{table.name}: cases show whole lines, and {', '.join(sensitive)} is sensitive: write cases by hand"
        )
    chosen = _chosen(config, table, place, now, most)
    received = [now if fate in _BY_ARRIVAL else None for fate, _, _ in chosen]
    cases = [
        Case(number=number, line=with_outer(line, outer) if outer else line, received=at)
        for number, ((_, line, outer), at) in enumerate(zip(chosen, received, strict=True), 1)
    ]
    path = Path(f"{table.name.table}{SUFFIX}")
    trials = {
        at: convert_cases(table, path, [case for case in cases if case.received == at], at) for at in set(received)
    }
    return [
        _written(case, line, outer, trials[case.received]) for case, (_, line, outer) in zip(cases, chosen, strict=True)
    ]


def _chosen(
    config: StoreConfig, table: TableDefinition, place: str, now: datetime, most: int
) -> list[tuple[str, bytes, bytes]]:
    """Returns fates, lines and the values around them: the first rows, and the first line of every other fate."""
    objects = find_objects(place, config)
    chosen: list[tuple[str, bytes, bytes]] = []
    seen: dict[str, int] = {}
    for item, trial in zip(objects, try_objects(table, objects, now, secret_of=secret_of_name), strict=True):
        fates = trial.fates()
        form = placed(table, item)[0].format
        sources = trial.layout.reading.lookups.around.outer
        for number, line, outer in _lines(first_lines(len(objects)), Inflation(item.chunks()), form, sources):
            fate = fates.get(number, FILTERED)
            if seen.get(fate, 0) < (most if fate == ROW else 1) and _as_text(line) is not None:
                seen[fate] = seen.get(fate, 0) + 1
                chosen.append((fate, line, outer))
    return chosen


def _lines(
    first: FirstLines, inflation: Inflation, form: Format | None, sources: Sequence[Outer]
) -> Iterator[tuple[int, bytes, bytes]]:
    """Yields numbers, lines, and the values around them as one object, or nothing."""
    if isinstance(form, DocumentFormat):
        parts = first.split_documents(inflation, form.steps, sources)
    else:
        parts = first.split(inflation, form)
    try:
        for part in parts:
            if isinstance(part, Block):
                lines = find_lines(part)
                for number, start, end in zip(lines.numbers.tolist(), lines.starts, lines.ends, strict=True):
                    around = [item for item in part.outer if item.first <= number]
                    yield number, part.data[start:end], _around(sources, around[-1].values) if around else b""
    except UnsoundError:
        return


def _around(sources: Sequence[Outer], values: Sequence[Value]) -> bytes:
    """Returns an object with the values at their paths. A path through an array, or into another value, is left out."""
    tree: dict[str, Any] = {}
    for source, (_, text) in sorted(zip(sources, values, strict=True), key=lambda item: len(item[0].steps)):
        *path, last = source.steps
        inside: Any = tree
        for step in path:
            inside = inside.setdefault(step, {}) if isinstance(inside, dict) and type(step) is str else None
        if text and isinstance(inside, dict) and type(last) is str:
            inside[last] = text
    return _written_tree(tree).encode() if tree else b""


def _written_tree(tree: dict[str, Any] | str) -> str:
    if isinstance(tree, str):
        return tree
    members = (f"{json.dumps(key, ensure_ascii=False)}: {_written_tree(value)}" for key, value in tree.items())
    return f"{{{', '.join(members)}}}"


def _as_text(line: bytes) -> str | None:
    """Returns a line as a case has it: an object unchanged, anything else quoted. None if the bytes are no text."""
    try:
        text = line.decode()
    except UnicodeDecodeError:
        return None
    try:
        read_line(line, {})
    except RejectedError:
        return json.dumps(text, ensure_ascii=False)
    return text.strip()


def _written(case: Case, line: bytes, outer: bytes, trial: ObjectTrial) -> str:
    at = f', "received": "{case.received.isoformat()}"' if case.received else ""
    around = f', "outer": {outer.decode()}' if outer else ""
    return f'{{"line": {_as_text(line)}{around}{at}, {_expected(case.number, trial)}}}'


def _expected(number: int, trial: ObjectTrial) -> str:
    for item in trial.set_aside:
        if item.line == number:
            return f'"quarantined": {json.dumps(item.reason)}'
    numbers = trial.numbers.tolist()
    if number not in numbers:
        return f'"{ELSEWHERE if number in trial.elsewhere_numbers else FILTERED}": true'
    row = trial.rows.slice(numbers.index(number), 1).to_pylist()[0]
    kinds = {column.name: column.type for column in trial.layout.columns}
    members = [f"{json.dumps(name)}: {text_of(value, kinds[name])}" for name, value in row.items() if value is not None]
    return f'"row": {{{", ".join(members)}}}'
