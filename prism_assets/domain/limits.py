"""What people expect of a table: how fresh it is, and when a check of it fails. No stage decides by it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, kw_only=True)
class Freshness:
    """How long a table may be without new rows before people are warned, and before it counts as failed."""

    fail: timedelta
    warn: timedelta | None = None


@dataclass(frozen=True, kw_only=True)
class CheckLimits:
    """From when on the checks of a table fail.

    `quarantine_rate` is a share of the lines of a day, from 0 to 1. The hours count from the end of an event date:
    till its objects are merged, and till its partition is switched. Of a join table, `too_late_rate` is the greatest
    share of the lines of a day that may be too late, and `join_rate` the least of records that have all groups.
    """

    quarantine_rate: float = 0.01
    unmerged_hours: float = 24.0
    closing_hours: float = 6.0
    too_late_rate: float = 0.001
    join_rate: float = 0.0
