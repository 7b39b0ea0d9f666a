"""Judges quarantined lines by the predicates of erasures: a line matches, does not match, or is undecided.

Only the columns of the predicates are read, as for a table without `keep`, `reject` and required columns. Expressions
are computed only if a predicate needs them. A line is undecided if it cannot be read, or if a value needed by the
predicate did not fit or was blanked.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import ExitStack
from dataclasses import replace
from types import TracebackType

import numpy as np

from prism_assets.domain.columns.column import Column
from prism_assets.domain.erasures.rules import ErasureRule
from prism_assets.domain.streams.sources import Outer
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.tables.options import Contract
from prism_assets.kernels.expressions.predicate import Matches, Predicate
from prism_assets.kernels.expressions.rows import Computation
from prism_assets.kernels.expressions.session import secret_of_worker
from prism_assets.kernels.json.blanking import Blanking
from prism_assets.kernels.json.block_reader import BlockReader, Way
from prism_assets.kernels.json.blocks import BOM, Block
from prism_assets.kernels.json.picks import Facts, MessageFact, sources_in
from prism_assets.kernels.json.rows import RejectedError, read_line
from prism_assets.kernels.typed import Layout, Mask, TypedRows


class ErasedLines:
    """Judges lines of one staging object; `blanking` has left out some values. For one thread; close it.

    `messages` says whether the lines are messages of a topic: then facts about them are not in the lines.

    ExpressionsFailed if an expression of a predicate's column cannot be computed.
    """

    def __init__(
        self,
        table: TableDefinition,
        erasures: Sequence[ErasureRule],
        facts: Facts,
        expression_seconds: float,
        blanking: Blanking | None = None,
        *,
        messages: bool = False,
    ) -> None:
        self._layout = replace(Layout.of(_needed(table, erasures), facts), messages=messages)
        self._computation = Computation(self._layout, expression_seconds, secret_of_worker)
        self._computation.check()
        self._stack = ExitStack()
        self._predicates = [self._stack.enter_context(Predicate(rule, expression_seconds)) for rule in erasures]
        program = self._layout.program
        needed = {number for item in self._predicates for number in item.column_ids}
        # A computed column may be made of any column, so any blanked one leaves it undecided.
        telling = {
            place: column
            for place, column in enumerate(program.columns)
            if program.computes or column.column_id in needed
        }
        self._telling = frozenset(telling)
        hides = blanking is not None and any(map(blanking.hides, telling.values()))
        self._is_blind = hides or any(_is_outer(column, messages) for column in telling.values())

    def __enter__(self) -> ErasedLines:
        """Returns the judge."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Releases DuckDB."""
        self.close()

    def close(self) -> None:
        """Releases DuckDB."""
        self._computation.close()
        self._stack.close()

    def judge(self, lines: Sequence[bytes], *, unmatched: Collection[int] = ()) -> Matches:
        """Judges some lines. No line matches the erasures with the ids `unmatched`, as the caller knows."""
        predicates = [item for item in self._predicates if item.rule.erasure_id not in unmatched]
        matching, undecided = np.zeros(len(lines), bool), np.ones(len(lines), bool)
        if not predicates:
            return Matches(matching, np.zeros(len(lines), bool))
        if self._is_blind:
            return Matches(matching, undecided)
        readable = [place for place, line in enumerate(lines) if b"\n" not in line or _is_record(line)]
        places = np.array(readable, np.int64)
        if not len(places):
            return Matches(matching, undecided)
        data = b"".join(lines[place].removeprefix(BOM).replace(b"\n", b" ") + b"\n" for place in places.tolist())
        for read in BlockReader(self._layout.reading, Way.LINES).read_parts(Block(data, 1)):
            for part in read.parts:
                rows = self._computation.compute(part).rows
                found = places[read.lines.numbers[rows.lines] - 1]
                matching[found], undecided[found] = self._judged(rows, predicates)
        return Matches(matching, undecided)

    def _judged(self, rows: TypedRows, predicates: Sequence[Predicate]) -> tuple[Mask, Mask]:
        columns = {column.column_id: array for column, array in zip(self._layout.columns, rows.columns, strict=True)}
        matching, undecided = np.zeros(len(rows.lines), bool), np.zeros(len(rows.lines), bool)
        for predicate in predicates:
            answer = predicate.matches(columns, len(rows.lines))
            matching |= answer.matching
            undecided |= answer.undecided
        for bad in rows.misfits:
            if bad.column in self._telling:
                undecided[bad.rows] = True
        return matching, undecided & ~matching


def _is_record(line: bytes) -> bool:
    """Whether all newlines stand between tokens: so in a record of a document, and in no message of another format."""
    try:
        read_line(line, {})
    except RejectedError:
        return False
    return True


def _is_outer(column: Column, messages: bool) -> bool:
    """Whether a column reads values around the record, or facts about the message. A quarantined line has none."""
    sources = sources_in(column, messages=messages) if column.value is None else ()
    return any(isinstance(source, Outer | MessageFact) for source in sources)


def _needed(table: TableDefinition, erasures: Sequence[ErasureRule]) -> TableDefinition:
    """The definition to read lines under: computed columns are left out, unless a rule is over one."""
    asked = {column.column_id for rule in erasures for column in rule.defined}
    columns = tuple(replace(column, required=False) for column in table.columns)
    needed = replace(table, columns=columns, keep=None, reject=(), contract=Contract())
    if any(column.value is not None for column in columns if column.column_id in asked):
        return needed
    read, unread = ([column for column in of if column.value is None] for of in (columns, table.unstored))
    return replace(needed, columns=tuple(read), unstored=tuple(unread), computed=())


class AgreedLines:
    """Judges lines under two definitions: the one of their conversion, and the current one.

    A rule names columns of the current definition. A line may have been set aside before the table had such a column,
    or while the column was read from another key. Under one definition alone the column would be null in the line: the
    rule would then keep a line of the user, or take another one. So a line matches if it matches under both, and is
    undecided if they differ.

    A judge may be None: the earlier one where the table had no such column, the current one where the column cannot be
    computed any more. With neither, every line is undecided.
    """

    def __init__(self, judges: Sequence[tuple[ErasedLines | None, ErasedLines | None]]) -> None:
        self._judges = judges

    def __enter__(self) -> AgreedLines:
        """Returns the judge."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Releases DuckDB."""
        for judges in self._judges:
            for judge in filter(None, judges):
                judge.close()

    def judge(self, lines: Sequence[bytes], *, unmatched: Collection[int] = ()) -> Matches:
        """Judges some lines, as `ErasedLines.judge` does."""
        matching, undecided = np.zeros(len(lines), bool), np.zeros(len(lines), bool)
        for judges in self._judges:
            said = [judge.judge(lines, unmatched=unmatched) for judge in judges if judge is not None]
            if not said:
                return Matches(np.zeros(len(lines), bool), np.ones(len(lines), bool))
            first, last = said[0], said[-1]
            matching |= first.matching & last.matching
            undecided |= first.undecided | last.undecided | (first.matching ^ last.matching)
        return Matches(matching, undecided & ~matching)
