"""Write amplification of join tables: rows written by folds per change."""

from __future__ import annotations

from dataclasses import dataclass

from prism_assets.domain.records.joins import PublishPolicy

MOST_FACTOR = 50
"""Rows written per change. Larger factors are reported, and `apply` asks about them."""
MOST_DAILY_ROWS = 1_000_000
"""Writing fewer rows a day is cheap, even if few of them have changed."""


@dataclass(frozen=True, kw_only=True)
class Amplification:
    """Rows written by folds over some days, and the changes folded into them."""

    rows_written: int
    changes_folded: int
    days: float = 1.0

    @property
    def factor(self) -> float:
        """Rows written per change. 0 if nothing was written."""
        return self.rows_written / max(self.changes_folded, 1)

    @property
    def is_too_much(self) -> bool:
        """Whether to report the amplification."""
        return self.factor > MOST_FACTOR and self.rows_written > MOST_DAILY_ROWS * self.days


def expected_forever(records: float, changes_per_second: float, policy: PublishPolicy) -> float:
    """Returns rows written per change if records live for ever, with one object per bucket.

    A fold rewrites the object once the share `dirty` of its rows is touched or the oldest change is stale, whichever
    comes first. Each change counts as touching another record, so the real factor may be lower.
    """
    touched = min(policy.dirty * records, changes_per_second * max(policy.stale_seconds, policy.every_seconds))
    return records / touched if touched > 0 else 0.0
