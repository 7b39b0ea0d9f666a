"""Times of changes and records as milliseconds since 1970; their dates, cohorts and settle times."""

from __future__ import annotations

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from prism_assets.domain.records.joins import JoinOptions
from prism_assets.kernels import times

Instants = npt.NDArray[np.int64]
COHORT_MS = 15 * 60 * 1_000
NEVER = np.iinfo(np.int64).max


def event_times(column: pa.ChunkedArray, zone: ZoneInfo) -> Instants:
    """The times in a partition column; a date counts as its first instant in the table's zone."""
    whole = column.combine_chunks()
    if pa.types.is_timestamp(whole.type):
        instants: Instants = whole.cast(pa.timestamp("ms", "UTC")).view(pa.int64()).to_numpy()
        return instants
    days, places = np.unique(whole.view(pa.int32()).to_numpy(), return_inverse=True)
    midnights = np.array([times.midnight_of(int(day), zone) for day in days], np.int64)
    return midnights[places] if len(days) else np.zeros(0, np.int64)


def days_of(instants: Instants, zone: ZoneInfo) -> npt.NDArray[np.int32]:
    """The dates of instants in a zone, as days since 1970."""
    if not len(instants):
        return np.zeros(0, np.int32)
    first, last = (int(bound) // 86_400_000 for bound in (instants.min(), instants.max()))
    return times.Calendar(first - 1, last + 1, zone).days(instants)


def cohorts_of(instants: Instants, join: JoinOptions) -> npt.NDArray[np.int64]:
    """The quarter of an hour of the first events. Records that live for ever all have cohort 0."""
    return np.zeros(len(instants), np.int64) if join.window_seconds is None else instants // COHORT_MS


def settle_times(last_events: Instants, join: JoinOptions) -> Instants:
    """From when on no accepted change can meet records with these last events; NEVER if they live for ever."""
    if join.window_seconds is None:
        return np.full(len(last_events), NEVER)
    return last_events + (join.window_seconds + join.lateness_seconds) * 1_000


def to_instant(time: datetime) -> int:
    """The milliseconds of a time, rounded down."""
    return (time - times.to_datetime(0)) // timedelta(milliseconds=1)


def settles_at(instant: int) -> datetime | None:
    """The settle time as a datetime; None for NEVER, and beyond the last date of the calendar."""
    return None if instant > times.LAST_INSTANT else times.to_datetime(instant)
