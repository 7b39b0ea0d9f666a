"""Expectations of people about a table: freshness, and limits of checks. No stage depends on them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, kw_only=True)
class Freshness:
    """How long a table may go without new rows until a warning, and until it counts as failed."""

    fail: timedelta
    warn: timedelta | None = None


@dataclass(frozen=True, kw_only=True)
class CheckLimits:
    """Limits beyond which a table's checks fail."""

    quarantine_rate: float = 0.01
    """The share of a day's lines that may be quarantined, from 0 to 1."""
    unmerged_hours: float = 24.0
    """Hours from the end of an event date until its objects are merged."""
    closing_hours: float = 6.0
    """Hours from the end of an event date until its partition is switched."""
    lag_minutes: float = 15.0
    """For topics: minutes that a message may wait for its worker."""
    too_late_rate: float = 0.001
    """For join tables: the share of a day's lines that may be too late."""
    join_rate: float = 0.0
    """For join tables: the least share of records with all groups."""
