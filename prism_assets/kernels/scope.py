"""Restricts a conversion to some lines of a staging object."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from prism_assets.domain.errors import TerminalError
from prism_assets.domain.streams.reasons import OTHER_DAY
from prism_assets.domain.text import counted
from prism_assets.kernels import times
from prism_assets.kernels.json.accept import Accepted
from prism_assets.kernels.json.rows import Reject

Numbers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class Scope(ABC):
    """Takes lines out of a conversion, block by block. `left` counts the lines of rows elsewhere."""

    left: int = 0

    def begin(self) -> None:
        """Starts again, because the object is read again from its beginning."""
        self.left = 0

    @abstractmethod
    def keeps(self, numbers: Numbers) -> Mask:
        """The lines of a block that may be set aside or filtered.

        Called once a block, with the numbers of all its lines, also of unreadable ones.
        """

    @abstractmethod
    def narrow(self, accepted: Accepted, numbers: Numbers) -> tuple[Accepted, list[Reject]]:
        """Divides rows into rows that stay and lines to set aside. `numbers` are the numbers of the block's lines."""

    def check(self) -> None:
        """Raises an error if nothing may be written. Called when everything is read and nothing written."""
        return


class DayScope(Scope):
    """Keeps the rows of one day. Lines of other days' rows stay with those days.

    No row moves from one day to another: catalogs show days one by one, so a reader would miss the row or see it twice.
    A line without a row that would now be a row of another day is set aside, and `other_days` has its day.

    - `taken`: the sorted numbers of the lines of other days' rows.
    - `others`: days whose rows already come from this definition.
    - `set_aside`: quarantined lines. No day has rows of them.
    - `held` finds the lines of the day's own recorded rows. It is called only if rows would move to another day.
    """

    def __init__(
        self,
        day: int,
        taken: Numbers,
        others: Collection[int],
        set_aside: Numbers,
        held: Callable[[], Numbers],
        url: str,
    ) -> None:
        self._day = day
        self._taken = taken
        self._others = np.array(sorted(others), np.int32)
        self._set_aside = set_aside
        self._held = held
        self._url = url
        self.begin()

    def begin(self) -> None:
        """Starts again."""
        super().begin()
        self.on_other_days: Counter[int] = Counter()
        self.other_days: set[int] = set()
        self._moved_in = 0
        self._elsewhere: list[Numbers] = []

    def keeps(self, numbers: Numbers) -> Mask:
        """All lines except those of other days' rows."""
        kept = ~np.isin(numbers, self._taken)
        self.left += int(len(kept) - kept.sum())
        return kept

    def narrow(self, accepted: Accepted, numbers: Numbers) -> tuple[Accepted, list[Reject]]:
        """Keeps rows of the day, from lines without a row on another day."""
        taken = np.isin(accepted.numbers, self._taken)
        here = accepted.days == self._day
        others = ~taken & np.isin(accepted.days, self._others) & ~np.isin(accepted.numbers, self._set_aside)
        for day in accepted.days[others].tolist():
            self.on_other_days[day] += 1
        self.left += int(others.sum())
        self._moved_in += int((taken & here).sum())
        waits = ~taken & ~here & ~others
        elsewhere = accepted.numbers[waits]
        if len(elsewhere):
            self._elsewhere.append(elsewhere)
            self.other_days.update(np.unique(accepted.days[waits]).tolist())
        rejects = [Reject(int(line), OTHER_DAY, None) for line in np.searchsorted(numbers, elsewhere)]
        return _some(accepted, ~taken & here), rejects

    def check(self) -> None:
        """TerminalError if a row would move from one day to another."""
        moved_out = 0
        if self._elsewhere:
            moved_out = int(np.isin(np.concatenate(self._elsewhere), self._held()).sum())
        if moved_out or self._moved_in:
            day = times.to_date(self._day)
            raise TerminalError(
                f"of {self._url} {counted(moved_out, 'row')} of {day} would be rows of other days under the present "
                f"definition, and {counted(self._moved_in, 'row')} of other days would be rows of {day}: a rebuild "
                "moves no row from one day to another, as each day is published by itself; what decides over the day "
                "must stay as it was"
            )


class LinesOfDays(Scope):
    """Collects the lines of some days' rows, without the `set_aside` ones. Keeps no row."""

    def __init__(self, days: Collection[int], set_aside: Numbers) -> None:
        self._days = sorted(days)
        self._set_aside = set_aside
        self.begin()

    def begin(self) -> None:
        """Starts again."""
        super().begin()
        self._found: dict[int, list[Numbers]] = {day: [] for day in self._days}

    def keeps(self, numbers: Numbers) -> Mask:
        """No line."""
        self.left += len(numbers)
        return np.zeros(len(numbers), bool)

    def narrow(self, accepted: Accepted, numbers: Numbers) -> tuple[Accepted, list[Reject]]:
        """Keeps no row; collects the lines of the days."""
        rows = ~np.isin(accepted.numbers, self._set_aside)
        for day, found in self._found.items():
            found.append(accepted.numbers[rows & (accepted.days == day)])
        return _some(accepted, np.zeros(len(accepted.days), bool)), []

    def lines(self) -> Mapping[int, Numbers]:
        """The numbers of the lines, by day."""
        nothing = np.zeros(0, np.int64)
        return {day: np.concatenate([nothing, *found]) for day, found in self._found.items()}


def _some(accepted: Accepted, kept: Mask) -> Accepted:
    """Some of the rows. Values that did not fit are counted for all rows."""
    if kept.all():
        return accepted
    mask = pa.array(kept)
    columns = [column.filter(mask) for column in accepted.columns]
    return Accepted(accepted.numbers[kept], accepted.days[kept], columns, accepted.value_errors)
