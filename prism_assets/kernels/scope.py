"""Which lines of a staging object a conversion is about, where that is not all of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from prism_assets.domain.errors import TerminalError
from prism_assets.domain.reasons import OTHER_DAY
from prism_assets.domain.words import counted
from prism_assets.kernels import times
from prism_assets.kernels.json.accept import Accepted
from prism_assets.kernels.json.rows import Reject

Numbers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class Scope(ABC):
    """Takes lines out of a conversion, block by block. `left` counts those that rows elsewhere were made of."""

    left: int = 0

    def begin(self) -> None:
        """Forgets what it saw: the object is read from its beginning again."""
        self.left = 0

    @abstractmethod
    def keeps(self, numbers: Numbers) -> Mask:
        """Which lines of a block may be set aside or filtered; called once a block, with the numbers of all."""

    @abstractmethod
    def narrow(self, accepted: Accepted, numbers: Numbers) -> tuple[Accepted, list[Reject]]:
        """The rows that stay, and those that are set aside instead; `numbers` are those of the block's lines."""

    def check(self) -> None:
        """Called when everything is read and nothing written; raises what forbids to go on."""
        return


class DayScope(Scope):
    """Rows of one day alone. Lines of which other days have rows are theirs, and stay it.

    `taken` are the numbers of lines that other days have rows of, in order; rows of the days `others` are already what
    this conversion makes of them, but for lines that are `set_aside`, of which no day has a row. `held` tells the lines
    that the day itself has rows of by now: it is asked only if rows would go elsewhere. No row moves from one day to
    another, as days are published one by one: a reader would miss it, or see it twice. Lines that are no rows so far,
    and would be those of another day, are set aside; `other_days` are theirs.
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
        """Forgets what it saw."""
        super().begin()
        self.on_other_days: Counter[int] = Counter()
        self.other_days: set[int] = set()
        self._moved_in = 0
        self._elsewhere: list[Numbers] = []

    def keeps(self, numbers: Numbers) -> Mask:
        """All but those that other days have rows of."""
        kept = ~np.isin(numbers, self._taken)
        self.left += int(len(kept) - kept.sum())
        return kept

    def narrow(self, accepted: Accepted, numbers: Numbers) -> tuple[Accepted, list[Reject]]:
        """Those of the day, of lines that no other day has."""
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
    """Notes of which lines some days have rows, but for those that are `set_aside`, and keeps none."""

    def __init__(self, days: Collection[int], set_aside: Numbers) -> None:
        self._days = sorted(days)
        self._set_aside = set_aside
        self.begin()

    def begin(self) -> None:
        """Forgets what it saw."""
        super().begin()
        self._found: dict[int, list[Numbers]] = {day: [] for day in self._days}

    def keeps(self, numbers: Numbers) -> Mask:
        """None."""
        self.left += len(numbers)
        return np.zeros(len(numbers), bool)

    def narrow(self, accepted: Accepted, numbers: Numbers) -> tuple[Accepted, list[Reject]]:
        """None; notes the lines of the days."""
        rows = ~np.isin(accepted.numbers, self._set_aside)
        for day, found in self._found.items():
            found.append(accepted.numbers[rows & (accepted.days == day)])
        return _some(accepted, np.zeros(len(accepted.days), bool)), []

    def lines(self) -> Mapping[int, Numbers]:
        """The numbers of the lines, by day."""
        nothing = np.zeros(0, np.int64)
        return {day: np.concatenate([nothing, *found]) for day, found in self._found.items()}


def _some(accepted: Accepted, kept: Mask) -> Accepted:
    """Some of the rows. What did not fit is counted of all."""
    if kept.all():
        return accepted
    mask = pa.array(kept)
    columns = [column.filter(mask) for column in accepted.columns]
    return Accepted(accepted.numbers[kept], accepted.days[kept], columns, accepted.value_errors)
