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
_FIRST_PARKED, _LONGEST_PARKED = 3_600.0, 86_400.0
_MOST_PARKED = 17
"""Two weeks in all: an archive restores within two days, and nothing is tried for ever."""
_TRIES_ALONE = 2


@dataclass(frozen=True, kw_only=True)
class AttemptPolicy:
    """How many attempts an object has.

    `most` for a fault of its own; `most_refused` where the store refuses it and serves others, which may pass.
    """

    most: int
    most_refused: int


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
    """Given up, and visible as failed. With `parked` it is begun anew by itself after so many seconds."""

    parked: float | None = None


Verdict = Retry | GiveUp


def after_failure(
    failure: Failure, *, attempts: int, outages: int, policy: AttemptPolicy, source_serves_others: bool
) -> Verdict:
    """Decides on an object after a result that is a failure. `attempts` and `outages` are those before this one."""
    if not failure.transient:
        pause = _PAUSE_AFTER_DEATH if failure.killed else 1.0
        return GiveUp() if attempts + 1 >= policy.most else Retry(pause=_growing(pause, attempts), charged=True)
    if not (failure.at_source and source_serves_others):
        return Retry(pause=min(_growing(1.0, outages), _LONGEST_OUTAGE_PAUSE), charged=False)
    if attempts + 1 < policy.most_refused:
        return Retry(pause=_growing(1.0, attempts), charged=True)
    times = attempts + 1 - policy.most_refused
    return GiveUp(parked=min(_FIRST_PARKED * 2.0**times, _LONGEST_PARKED) if times < _MOST_PARKED else None)


def after_death(*, attempts: int, companions: int, proven: bool, noticed_late: bool, policy: AttemptPolicy) -> Verdict:
    """Decides on an object whose batch died with it and so many `companions`: each half is tried by itself next.

    Given up is only what was alone, and only where it is `proven` that batches work otherwise. Deaths in company leave
    an object enough attempts to be tried alone. A death that was `noticed_late`, by a lease that ran out, needs no
    further pause.
    """
    if companions:
        left = policy.most - _TRIES_ALONE
        return Retry(pause=0.0, charged=attempts < left, batch_limit=(companions + 2) // 2)
    pause = 0.0 if noticed_late else _growing(1.0, attempts)
    if not proven:
        return Retry(pause=pause, charged=attempts + 1 < policy.most, batch_limit=1)
    return GiveUp() if attempts + 1 >= policy.most else Retry(pause=pause, charged=True, batch_limit=1)


def _growing(first: float, times: int) -> float:
    return float(min(first * 2.0 ** min(times, 30), _LONGEST_PAUSE))
