"""Decides on a staging object after a failed conversion: retry, give up, or restart. Pure functions.

The decision depends on whose fault it is. An object's own fault is charged to it, and after enough attempts it is given
up. A fault of the surroundings is charged to nobody and waited for. If the error does not tell, other objects do: if
the same store serves others, it refuses this object.
"""

from __future__ import annotations

from dataclasses import dataclass

from prism_assets.domain.work import Failure

_LONGEST_OUTAGE_PAUSE = 60.0
_LONGEST_PAUSE = 300.0
_PAUSE_AFTER_DEATH = 30.0
"""Keeps a worker killed repeatedly from outside from using up an object's attempts within minutes."""
_FIRST_REST, _LONGEST_REST = 3_600.0, 86_400.0
_MOST_RESTS = 17
"""Two weeks in all. An archive restores within two days, and nothing is tried for ever."""
_TRIES_ALONE = 4
"""Randomly killed workers may die over one object twice in a row, and rarely three times."""


@dataclass(frozen=True, kw_only=True)
class AttemptPolicy:
    """How many attempts an object has."""

    max_attempts: int
    """For the object's own faults."""
    max_refusals: int
    """If the store refuses the object and serves others, because this may pass."""


@dataclass(frozen=True, kw_only=True)
class Retry:
    """Try again after a pause."""

    pause: float
    """Seconds."""
    charged: bool
    """False if the surroundings ended the attempt."""
    batch_limit: int | None = None
    """The largest batch that may contain the object from now on, or None."""


@dataclass(frozen=True, kw_only=True)
class GiveUp:
    """The object is given up and shown as failed."""

    retry_after: float | None = None
    """Seconds until an automatic restart, or None."""


Verdict = Retry | GiveUp


def after_failure(
    failure: Failure, *, attempts: int, outages: int, policy: AttemptPolicy, source_serves_others: bool
) -> Verdict:
    """Decides on an object after a failed result. `attempts` and `outages` count earlier ones."""
    if not failure.transient:
        if attempts + 1 >= policy.max_attempts:
            return _rest(attempts + 1 - policy.max_attempts) if failure.killed else GiveUp()
        return Retry(pause=_growing(_PAUSE_AFTER_DEATH if failure.killed else 1.0, attempts), charged=True)
    if not (failure.at_source and (failure.of_object or source_serves_others)):
        return Retry(pause=min(_growing(1.0, outages), _LONGEST_OUTAGE_PAUSE), charged=False)
    if attempts + 1 < policy.max_refusals:
        return Retry(pause=_growing(1.0, attempts), charged=True)
    return _rest(attempts + 1 - policy.max_refusals)


def after_rewrite(*, rewrites: int, policy: AttemptPolicy) -> Verdict:
    """Decides on an object that must restart: its key holds another version, or its output keys hold other rows.

    The object gets all its attempts again. After `rewrites` restarts in a row, another one may pause it for long.
    """
    if rewrites + 1 < policy.max_attempts:
        return Retry(pause=_growing(1.0, rewrites), charged=False)
    return _rest(rewrites + 1 - policy.max_attempts)


def _rest(times: int) -> GiveUp:
    """Gives up for a while, longer each time, and finally for good. `times` counts earlier rests."""
    return GiveUp(retry_after=min(_FIRST_REST * 2.0**times, _LONGEST_REST) if times < _MOST_RESTS else None)


def after_lost_engine(*, attempts: int, companions: int, proven: bool, policy: AttemptPolicy) -> Verdict:
    """Decides on an object whose engine disappeared during a batch with `companions` other objects.

    Unless the engine is `proven` to have worked just before, it may have gone for its own reasons: nobody is charged,
    and the engine is probed before the next try. Otherwise the batch may have killed it, and is divided.
    """
    if not proven:
        return Retry(pause=0.0, charged=False, batch_limit=companions + 1)
    return after_death(attempts=attempts, companions=companions, proven=True, noticed_late=False, policy=policy)


def after_death(*, attempts: int, companions: int, proven: bool, noticed_late: bool, policy: AttemptPolicy) -> Verdict:
    """Decides on an object whose batch died with it and `companions` other objects. Each half is tried separately next.

    Only an object that was alone is given up, and only if other batches are `proven` to work. The worker may still have
    died of something else, so it is tried again much later. Deaths in company leave an object enough attempts to be
    tried alone. A death that was `noticed_late`, by an expired lease, needs no further pause.
    """
    if companions:
        left = policy.max_attempts - _TRIES_ALONE
        return Retry(pause=0.0, charged=attempts < left, batch_limit=(companions + 2) // 2)
    pause = 0.0 if noticed_late else _growing(1.0, attempts)
    if not proven:
        return Retry(pause=pause, charged=attempts + 1 < policy.max_attempts, batch_limit=1)
    if attempts + 1 >= policy.max_attempts:
        return _rest(attempts + 1 - policy.max_attempts)
    return Retry(pause=pause, charged=True, batch_limit=1)


def _growing(first: float, times: int) -> float:
    return float(min(first * 2.0 ** min(times, 30), _LONGEST_PAUSE))
