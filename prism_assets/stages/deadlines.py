"""When a piece of work has to stop, on the clock of this process, which nobody sets."""

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
        """So many seconds from now."""
        return cls(time.monotonic() + seconds)

    @property
    def seconds_left(self) -> float:
        """What is left, 0 when it is over."""
        return max(0.0, self.instant - time.monotonic())

    @property
    def is_over(self) -> bool:
        """Whether nothing is left."""
        return self.seconds_left == 0

    def half(self) -> Deadline:
        """Half of what is left, so that one piece of work cannot take the time of all that follow."""
        return Deadline.after(self.seconds_left / 2)


NEVER = Deadline(math.inf)
"""For work that may take as long as it takes."""
