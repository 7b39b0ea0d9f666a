"""Verdicts on failed merges, by the known cause."""

from __future__ import annotations

from prism_assets.domain.merges.attempts import after_death, after_failure
from prism_assets.domain.streams.attempts import AttemptPolicy, GiveUp, Retry
from prism_assets.domain.work import Failure

POLICY = AttemptPolicy(max_attempts=3, max_refusals=3)
REFUSED = Failure(message="503 SlowDown", transient=True, at_source=True)


def verdicts(failure: Failure, *, serves: bool = True, count: int = 4) -> list[Retry | GiveUp]:
    return [
        after_failure(failure, attempts=tries, policy=POLICY, source_serves_others=serves) for tries in range(count)
    ]


def test_a_fault_of_the_surroundings_charges_nobody_however_often_it_comes() -> None:
    away = Failure(message="away", transient=True)
    assert set(verdicts(away)) | set(verdicts(REFUSED, serves=False)) == {Retry(pause=60.0, charged=False)}


def test_a_merge_that_is_refused_while_others_are_served_is_parked_for_ever_longer_and_in_the_end_for_good() -> None:
    found = verdicts(REFUSED, count=30)
    assert found[:2] == [Retry(pause=1.0, charged=True), Retry(pause=2.0, charged=True)]
    pauses = [item.retry_after for item in found[2:] if isinstance(item, GiveUp)]
    assert [pause and pause / 3600 for pause in pauses[:6]] == [1, 2, 4, 8, 16, 24]
    assert 10 < sum(pause or 0 for pause in pauses) / 86_400 < 20
    assert pauses[-1] is None


def test_what_contradicts_itself_waits_for_a_person_at_once() -> None:
    found = verdicts(Failure(message="other rows", transient=False))
    assert found[2:] == [GiveUp(), GiveUp()]


def test_deaths_are_charged_only_to_what_was_alone_behind_a_probe() -> None:
    for alone, proven in ((False, True), (True, False), (False, False)):
        verdict = after_death(attempts=99, alone=alone, proven=proven, policy=POLICY)
        assert verdict == Retry(pause=0.0, charged=False, batch_limit=1)
    found = [after_death(attempts=tries, alone=True, proven=True, policy=POLICY) for tries in range(4)]
    assert found[:2] == [
        Retry(pause=30.0, charged=True, batch_limit=1),
        Retry(pause=60.0, charged=True, batch_limit=1),
    ]
    assert found[2:] == [GiveUp(retry_after=3_600.0), GiveUp(retry_after=7_200.0)]


def test_a_task_that_kills_its_job_is_parked_like_one_that_kills_its_worker() -> None:
    killed = Failure(message="the worker was killed", transient=False, killed=True)
    assert verdicts(killed)[2:] == [GiveUp(retry_after=3_600.0), GiveUp(retry_after=7_200.0)]
