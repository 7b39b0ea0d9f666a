"""Proposes cases for a table from a sample: lines with their current results, for review."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from prism_assets.domain.errors import WrongUse
from prism_assets.domain.streams.reasons import TOO_NEW, TOO_OLD
from prism_assets.domain.streams.sources import OUTER, Outer
from prism_assets.domain.streams.stream import DocumentFormat, ParquetFormat, Stream
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.tables.row_program import RowProgram
from prism_assets.drafting.cases import MESSAGE, SUFFIX, Case, convert_cases, secret_of_name, text_of, with_key
from prism_assets.drafting.sample_lines import find_objects
from prism_assets.drafting.trial import first_lines, placed, try_objects
from prism_assets.kernels.first_lines import FirstLines
from prism_assets.kernels.inflate import Inflation, UnsoundError
from prism_assets.kernels.json.blocks import Block, LongLine, find_lines
from prism_assets.kernels.json.picks import Around, Lookups, MessageFact
from prism_assets.kernels.json.rows import RejectedError, Value, read_line
from prism_assets.kernels.messages.blocks import SpoolSplitter
from prism_assets.kernels.messages.formats import lines_of
from prism_assets.kernels.messages.samples import as_messages
from prism_assets.kernels.messages.spool_file import spool_file_of
from prism_assets.kernels.text_lines.divider import Divider
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
    received = [now if item.fate in _BY_ARRIVAL else None for item in chosen]
    cases = [
        Case(number=number, line=item.with_keys, received=at)
        for number, (item, at) in enumerate(zip(chosen, received, strict=True), 1)
    ]
    path = Path(f"{table.name.table}{SUFFIX}")
    trials = {
        at: convert_cases(table, path, [case for case in cases if case.received == at], at) for at in set(received)
    }
    return [_written(case, item, trials[case.received]) for case, item in zip(cases, chosen, strict=True)]


@dataclass(frozen=True, kw_only=True)
class _Line:
    """A line of a sample, with the values around it and the facts about the message as objects, or nothing."""

    number: int
    line: bytes
    outer: bytes = b""
    message: bytes = b""
    fate: str = FILTERED

    @property
    def with_keys(self) -> bytes:
        line = with_key(self.line, OUTER, self.outer) if self.outer else self.line
        return with_key(line, MESSAGE, self.message) if self.message else line


def _chosen(config: StoreConfig, table: TableDefinition, place: str, now: datetime, most: int) -> list[_Line]:
    """Returns the first rows, and the first line of every other fate."""
    objects = find_objects(place, config)
    chosen: list[_Line] = []
    seen: dict[str, int] = {}
    for item, trial in zip(objects, try_objects(table, objects, now, secret_of=secret_of_name), strict=True):
        fates = trial.fates()
        lookups = trial.layout.reading.lookups
        parts = _parts(first_lines(len(objects)), item.chunks(), placed(table, item)[0], lookups.around.outer, now)
        for found in _lines(parts, lookups):
            fate = fates.get(found.number, FILTERED)
            if seen.get(fate, 0) < (most if fate == ROW else 1) and _as_text(found.line) is not None:
                seen[fate] = seen.get(fate, 0) + 1
                chosen.append(replace(found, fate=fate))
    return chosen


def _parts(
    first: FirstLines, chunks: Iterator[bytes], stream: Stream, sources: Sequence[Outer], now: datetime
) -> Iterator[Block | LongLine]:
    """Yields the lines of an object with all of their fields."""
    form, topic = stream.format, stream.topic
    spool, pieces = (None, chunks) if topic is None else spool_file_of(chunks)
    if topic is not None and spool is not None:
        return first.split_spool(SpoolSplitter(spool, lines_of(form, Divider), topic.tombstones, Around()))
    if isinstance(form, DocumentFormat):
        return first.split_documents(Inflation(pieces), form.steps, sources)
    parts = first.split(Inflation(pieces, binary=isinstance(form, ParquetFormat)), form)
    return parts if topic is None else as_messages(parts, topic.name, now, Around())


def _lines(parts: Iterator[Block | LongLine], lookups: Lookups) -> Iterator[_Line]:
    sources, names = lookups.around.outer, _facts_of(lookups)
    try:
        for part in parts:
            if isinstance(part, Block):
                lines, facts = find_lines(part), {}
                if part.messages is not None:
                    facts = {name: part.messages.values(name) for name in names}
                for number, start, end in zip(lines.numbers.tolist(), lines.starts, lines.ends, strict=True):
                    around = [item for item in part.outer if item.first <= number]
                    outer = _around(sources, around[-1].values) if around else b""
                    texts = {name: values[number - part.first_line][1] for name, values in facts.items()}
                    message = _written_tree({name: text for name, text in texts.items() if text})
                    yield _Line(
                        number=number,
                        line=part.data[start:end],
                        outer=outer,
                        message=message.encode() if message != "{}" else b"",
                    )
    except UnsoundError:
        return


def _facts_of(lookups: Lookups) -> list[str]:
    """Returns the facts about messages that columns read."""
    alone = [fact.name for fact in lookups.facts.values() if isinstance(fact, MessageFact)]
    return sorted({*alone, *(name for names in lookups.mixed.values() for name in names)})


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


def _written(case: Case, item: _Line, trial: ObjectTrial) -> str:
    at = f', "received": "{case.received.isoformat()}"' if case.received else ""
    around = f', "outer": {item.outer.decode()}' if item.outer else ""
    around += f', "message": {item.message.decode()}' if item.message else ""
    return f'{{"line": {_as_text(item.line)}{around}{at}, {_expected(case.number, trial)}}}'


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
