"""Decides on a merge job after a failure: retry, or park and retry seldom. Pure functions.

Uses the vocabulary of `attempts`. No merge is given up for a fault that may pass, because nothing else merges its rows.
A job that contradicts stored facts waits for a person.
"""

from __future__ import annotations

from dataclasses import replace

from prism_assets.domain.streams import attempts as object_attempts
from prism_assets.domain.streams.attempts import AttemptPolicy, Retry, Verdict
from prism_assets.domain.work import Failure

_OUTAGE_PAUSE = 60.0
_DEATH = Failure(message="the worker died over it", transient=False, killed=True)


def after_failure(failure: Failure, *, attempts: int, policy: AttemptPolicy, source_serves_others: bool) -> Verdict:
    """Decides on a job after a failed result. `attempts` counts earlier ones."""
    if failure.killed:
        return after_death(attempts=attempts, alone=True, proven=True, policy=policy)
    if failure.transient and not (failure.at_source and (failure.of_object or source_serves_others)):
        return Retry(pause=_OUTAGE_PAUSE, charged=False)
    return object_attempts.after_failure(
        failure, attempts=attempts, outages=0, policy=policy, source_serves_others=source_serves_others
    )


def after_death(*, attempts: int, alone: bool, proven: bool, policy: AttemptPolicy) -> Verdict:
    """Decides on a job whose worker or engine died over it. From now on it runs alone.

    Charges the job only if it ran alone, and if the engine is `proven` to have worked just before. Other jobs run
    before the next attempt. After too many deaths the job is parked, as after refusals by the store.
    """
    if not (alone and proven):
        return Retry(pause=0.0, charged=False, batch_limit=1)
    verdict = object_attempts.after_failure(
        _DEATH, attempts=attempts, outages=0, policy=policy, source_serves_others=False
    )
    return replace(verdict, batch_limit=1) if isinstance(verdict, Retry) else verdict
