"""What becomes of a staging object whose conversion failed: tried again, given up, or begun anew. Pure decisions.

Whose fault it is decides. A fault of the object is charged to it, and after enough attempts the object is given up. A
fault of the surroundings is charged to nobody and waited for. Where it cannot be told from the error, what happens to
other objects tells: if the same store serves others, the object is the one it refuses.
"""

from __future__ import annotations

from dataclasses import dataclass

from prism_assets.domain.work import Failure

_LONGEST_OUTAGE_PAUSE = 60.0
_LONGEST_PAUSE = 300.0
_PAUSE_AFTER_DEATH = 30.0
"""A worker that is killed again and again from outside must not use up the attempts of one object within minutes."""
_FIRST_REST, _LONGEST_REST = 3_600.0, 86_400.0
_MOST_RESTS = 17
"""Two weeks in all: an archive restores within two days, and nothing is tried for ever."""
_TRIES_ALONE = 4
"""Workers that are killed at random die over one object twice in a row, and now and then three times."""


@dataclass(frozen=True, kw_only=True)
class AttemptPolicy:
    """How many attempts an object has.

    `max_attempts` for a fault of its own; `max_refusals` where the store refuses it and serves others, which may pass.
    """

    max_attempts: int
    max_refusals: int


@dataclass(frozen=True, kw_only=True)
class Retry:
    """Tried again after a pause in seconds. An attempt that is not charged was ended by the surroundings.

    `batch_limit` is the greatest batch that may hold the object from now on; None for any.
    """

    pause: float
    charged: bool
    batch_limit: int | None = None


@dataclass(frozen=True, kw_only=True)
class GiveUp:
    """Given up, and visible as failed. With `retry_after` it is begun anew by itself after so many seconds."""

    retry_after: float | None = None


Verdict = Retry | GiveUp


def after_failure(
    failure: Failure, *, attempts: int, outages: int, policy: AttemptPolicy, source_serves_others: bool
) -> Verdict:
    """Decides on an object after a result that is a failure. `attempts` and `outages` are those before this one."""
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
    """Decides on an object that begins anew: another version lies under its key, or other rows under those it writes.

    It has all its attempts again. One to which that happened `rewrites` times in a row, and happens again, may rest.
    """
    if rewrites + 1 < policy.max_attempts:
        return Retry(pause=_growing(1.0, rewrites), charged=False)
    return _rest(rewrites + 1 - policy.max_attempts)


def _rest(times: int) -> GiveUp:
    """Given up for the time being, for the so-many-th time after the first; in the end for good."""
    return GiveUp(retry_after=min(_FIRST_REST * 2.0**times, _LONGEST_REST) if times < _MOST_RESTS else None)


def after_lost_engine(*, attempts: int, companions: int, proven: bool, policy: AttemptPolicy) -> Verdict:
    """Decides on an object whose engine went away while it had a batch with so many `companions`.

    Unless the engine is `proven` to have worked just before, it may be gone for reasons of its own: nobody is charged,
    and before the next try the engine is probed. Otherwise the batch may have killed it, and is divided.
    """
    if not proven:
        return Retry(pause=0.0, charged=False, batch_limit=companions + 1)
    return after_death(attempts=attempts, companions=companions, proven=True, noticed_late=False, policy=policy)


def after_death(*, attempts: int, companions: int, proven: bool, noticed_late: bool, policy: AttemptPolicy) -> Verdict:
    """Decides on an object whose batch died with it and so many `companions`: each half is tried by itself next.

    Given up is only what was alone, and only where it is `proven` that batches work otherwise; as a worker may have
    died of something else all the same, it is tried again much later. Deaths in company leave an object enough attempts
    to be tried alone. A death that was `noticed_late`, by a lease that ran out, needs no further pause.
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
