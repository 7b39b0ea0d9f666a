"""The time limit of a piece of work, on the monotonic clock of this process, which nobody can set."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass


@dataclass(frozen=True)
class Deadline:
    """An instant of `time.monotonic()`, in seconds."""

    instant: float

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        """Returns the deadline in `seconds` from now."""
        return cls(time.monotonic() + seconds)

    @property
    def seconds_left(self) -> float:
        """The remaining seconds, 0 once it is over."""
        return max(0.0, self.instant - time.monotonic())

    @property
    def is_over(self) -> bool:
        """Whether no time remains."""
        return self.seconds_left == 0

    def half(self) -> Deadline:
        """Returns the deadline at half of the remaining time, so that a piece of work leaves time for the next ones."""
        return Deadline.after(self.seconds_left / 2)


NEVER = Deadline(math.inf)
"""For work without a time limit."""
