"""Holds leases during a stage's work, and waits for leases of workers that died or stand still."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress

from prism_assets.domain.errors import PrismError
from prism_assets.metadata import leases
from prism_assets.metadata.leases import Holder, Lease, LeaseKind
from prism_assets.stages.context import StageContext
from prism_assets.stages.heartbeats import Heartbeat

_PAUSE_SECONDS = 0.2
_MARGIN_SECONDS = 1.0


def takeover_seconds(context: StageContext) -> float:
    """Returns how long to wait for a lease until a dead or motionless holder has lost it for certain."""
    return context.settings.lease_seconds + _MARGIN_SECONDS


def find_holder(context: StageContext, kind: LeaseKind, subject_id: int) -> Holder | None:
    """Returns the holder of a lease that could not be taken. None if it was released since."""
    with context.database.begin() as connection:
        return leases.holders(connection, kind, [subject_id]).get(subject_id)


@contextmanager
def leased(
    context: StageContext, kind: LeaseKind, subject_ids: Collection[int], wait_seconds: float = 0.0
) -> Iterator[Mapping[int, Lease]]:
    """Holds the leases that are free, or become free within `wait_seconds`, and yields them by id.

    After a death they expire. They are renewed at every third of the lease, also during the wait for others.
    """
    held: dict[int, Lease] = {}
    _take(context, kind, set(subject_ids), held)
    beat = Heartbeat(
        context.database,
        context.settings.lease_seconds,
        lambda connection: leases.renew(connection, list(held.values())),
    )
    try:
        if not held and not wait_seconds:
            yield held
            return
        with beat:
            end = time.monotonic() + wait_seconds
            while (missing := set(subject_ids) - set(held)) and time.monotonic() < end:
                time.sleep(_PAUSE_SECONDS)
                _take(context, kind, missing, held)
            yield held
    finally:
        # An unreleased lease expires by itself, and the error already raised says more.
        with suppress(PrismError), context.database.begin() as connection:
            leases.release(connection, list(held.values()))


def _take(context: StageContext, kind: LeaseKind, wanted: Collection[int], held: dict[int, Lease]) -> None:
    with context.database.begin() as connection:
        taken = leases.take(connection, kind, wanted, context.worker, context.settings.lease_seconds)
    held.update({lease.subject_id: lease for lease in taken})
