"""Write amplification of join tables: how many rows folds write for each change that they take in."""

from __future__ import annotations

from dataclasses import dataclass

from prism_assets.domain.joins import PublishPolicy

MOST_FACTOR = 50
"""Rows written per change: above, it is told, and asked about."""
MOST_DAILY_ROWS = 1_000_000
"""To write so few costs little, however small the part of them is that has changed."""


@dataclass(frozen=True, kw_only=True)
class Amplification:
    """What the folds of `days` have written, and the changes that they put into it."""

    rows_written: int
    changes_folded: int
    days: float = 1.0

    @property
    def factor(self) -> float:
        """Rows written per change; 0 where nothing was written."""
        return self.rows_written / max(self.changes_folded, 1)

    @property
    def is_too_much(self) -> bool:
        """Whether people should know."""
        return self.factor > MOST_FACTOR and self.rows_written > MOST_DAILY_ROWS * self.days


def expected_forever(records: float, changes_per_second: float, policy: PublishPolicy) -> float:
    """Rows written per change where records live for ever, each bucket in one object.

    That is written anew when the share `dirty` of its rows is touched, or the oldest change is stale: whichever is
    first. Each change counts as of another record, so it may be less.
    """
    touched = min(policy.dirty * records, changes_per_second * max(policy.stale_seconds, policy.every_seconds))
    return records / touched if touched > 0 else 0.0
