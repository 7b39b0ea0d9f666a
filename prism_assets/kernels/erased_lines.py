"""Lines that are set aside, judged by erasures: which match, and which nobody can judge.

A line is read for the columns of the predicates alone, as for a table without `keep`, `reject` and required columns.
Where it cannot be read, or a value that the predicate needs did not fit, or was blanked, nobody knows.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import ExitStack
from dataclasses import replace
from types import TracebackType

import numpy as np

from prism_assets.domain.erasures import ErasureRule
from prism_assets.domain.table_options import Contract
from prism_assets.domain.tables import TableDefinition
from prism_assets.kernels.expressions.predicate import Matches, Predicate
from prism_assets.kernels.expressions.rows import Computation
from prism_assets.kernels.expressions.session import secret_of_worker
from prism_assets.kernels.json.blocks import BOM, Block
from prism_assets.kernels.json.columnar import Hints, read_block
from prism_assets.kernels.json.picks import Facts
from prism_assets.kernels.typed import Layout, Mask, TypedRows


class ErasedLines:
    """Judges lines of one staging object. To be used in one thread, and closed."""

    def __init__(
        self, table: TableDefinition, erasures: Sequence[ErasureRule], facts: Facts, expression_seconds: float
    ) -> None:
        columns = tuple(replace(column, required=False) for column in table.columns)
        self._layout = Layout.of(replace(table, columns=columns, keep=None, reject=(), contract=Contract()), facts)
        self._computation = Computation(self._layout, expression_seconds, secret_of_worker)
        self._stack = ExitStack()
        self._predicates = [self._stack.enter_context(Predicate(rule, expression_seconds)) for rule in erasures]
        program = self._layout.program
        needed = {number for item in self._predicates for number in item.column_ids}
        stored = {column.name for column in program.stored}
        # What a computed column is made of is as telling as that itself: any of the columns.
        computes = any(column.value is not None for column in program.columns if column.column_id in needed)
        places = [
            place
            for place, column in enumerate(program.columns)
            if computes or column.column_id in needed or column.name not in stored
        ]
        self._telling = frozenset(places)
        self._is_blind = any(program.columns[place].sensitive for place in places)

    def __enter__(self) -> ErasedLines:
        """Itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Lets go of DuckDB."""
        self.close()

    def close(self) -> None:
        """Lets go of DuckDB."""
        self._computation.close()
        self._stack.close()

    def judge(self, lines: Sequence[bytes], *, blanked: bool = False, unmatched: Collection[int] = ()) -> Matches:
        """Which of some lines match, and which may. `blanked` if values of sensitive columns are left out of them.

        `unmatched` are ids of erasures of which it is known that no line matches.
        """
        predicates = [item for item in self._predicates if item.rule.erasure_id not in unmatched]
        matching, undecided = np.zeros(len(lines), bool), np.ones(len(lines), bool)
        if not predicates:
            return Matches(matching, np.zeros(len(lines), bool))
        if blanked and self._is_blind:
            return Matches(matching, undecided)
        # What has a line end in it is a message of another format, and no line of JSON.
        places = np.array([place for place, line in enumerate(lines) if b"\n" not in line], np.int64)
        if not len(places):
            return Matches(matching, undecided)
        data = b"".join(lines[place].removeprefix(BOM) + b"\n" for place in places.tolist())
        read = read_block(self._layout.reading, Block(data, 1), Hints(), by_columns=False)
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


class AgreedLines:
    """Judges lines under two definitions: for each rule that of their conversion, and then the one in force.

    A rule is over columns as the table has them now. A line may have been set aside before one of them was there, or
    was read from where the line has it: to say that it is null in the line would leave what is asked for, or take what
    is not. So a line matches if it does under both, or under the one in force if the other has no such column, which is
    None then. Where they differ nobody can tell.
    """

    def __init__(self, judges: Sequence[tuple[ErasedLines | None, ErasedLines]]) -> None:
        self._judges = judges

    def __enter__(self) -> AgreedLines:
        """Itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Lets go of DuckDB."""
        for judges in self._judges:
            for judge in filter(None, judges):
                judge.close()

    def judge(self, lines: Sequence[bytes], *, blanked: bool = False, unmatched: Collection[int] = ()) -> Matches:
        """Which of some lines match, and which may, as `ErasedLines.judge` says."""
        matching, undecided = np.zeros(len(lines), bool), np.zeros(len(lines), bool)
        for of_then, of_now in self._judges:
            now = of_now.judge(lines, blanked=blanked, unmatched=unmatched)
            then = now if of_then is None else of_then.judge(lines, blanked=blanked, unmatched=unmatched)
            matching |= now.matching & then.matching
            undecided |= now.undecided | then.undecided | (now.matching ^ then.matching)
        return Matches(matching, undecided & ~matching)
