"""Leaves erased rows out of a conversion, and erased lines out of quarantine."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from functools import cached_property

import numpy as np
import pyarrow as pa

from prism_assets.domain.work.convert import ConvertTask
from prism_assets.kernels import times
from prism_assets.kernels.erased_lines import ErasedLines
from prism_assets.kernels.expressions.predicate import Matches, Predicate
from prism_assets.kernels.json.accept import Accepted
from prism_assets.kernels.typed import Layout


class Erasing:
    """The erasures of one task. For one thread; close it."""

    def __init__(self, layout: Layout, task: ConvertTask, expression_seconds: float) -> None:
        self._layout = layout
        self._task = task
        self._seconds = expression_seconds
        self._stack = ExitStack()
        self._predicates = [self._stack.enter_context(Predicate(rule, expression_seconds)) for rule in task.erasures]
        self._up_to = {times.to_day(day): last for day, last in task.erased_up_to.items()}

    def close(self) -> None:
        """Releases DuckDB."""
        self._stack.close()

    def left(self, accepted: Accepted) -> tuple[Accepted, int]:
        """The rows that stay, and the number of erased ones. A row without a result of the predicate stays."""
        count = len(accepted.numbers)
        columns = {
            column.column_id: array for column, array in zip(self._layout.columns, accepted.columns, strict=True)
        }
        gone = np.zeros(count, bool)
        for predicate in self._predicates:
            gone |= predicate.matches(columns, count).matching & self._applies(predicate, accepted.days)
        if not gone.any():
            return accepted, 0
        kept = pa.array(~gone)
        rest = Accepted(
            accepted.numbers[~gone],
            accepted.days[~gone],
            [column.filter(kept) for column in accepted.columns],
            accepted.value_errors,
        )
        return rest, int(gone.sum())

    def _applies(self, predicate: Predicate, days: times.Days) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """The rows that a rule applies to: all, unless an object is made again as it was before the rule."""
        without = [day for day, last in self._up_to.items() if predicate.rule.erasure_id > last]
        return ~np.isin(days, without)

    def judge(self, lines: Sequence[bytes]) -> Matches:
        """Judges lines that are to be set aside: they match, do not match, or are undecided."""
        return self._lines.judge(lines)

    @cached_property
    def _lines(self) -> ErasedLines:
        return self._stack.enter_context(
            ErasedLines(
                self._layout.table,
                self._task.erasures,
                self._layout.facts,
                self._seconds,
                messages=self._layout.messages,
            )
        )
