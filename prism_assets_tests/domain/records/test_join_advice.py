"""What is proposed for a join table, from samples whose records are known."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from prism_assets.domain.records.join_advice import ChangeSample, JoinAdvice, advise
from prism_assets.domain.records.joins import Group, JoinOptions, PublishPolicy
from prism_assets.domain.tables.amplification import expected_forever

DAY = 86_400.0


def advised(histories: list[list[float]], delays: tuple[float, ...] = (), **more: Any) -> JoinAdvice:
    join = JoinOptions(
        key=("id",), groups=(Group(name="front", sequence=("time",)),), members=(), window_seconds=10_800,
        lateness_seconds=3_600,
    )  # fmt: skip
    sample = ChangeSample(days=7, log_changes=1_000, one_of=1, histories=histories, delays=delays, **more)
    return advise("log.request", join, sample)


def requests(count: int, gap: float) -> list[list[float]]:
    """Keys with two changes so far apart, all through a day."""
    return [[at, at + gap] for at in (DAY * number / count for number in range(count))]


def test_a_window_holds_nearly_all_gaps_and_no_more() -> None:
    advice = advised([*requests(9_990, 40.0), *requests(5, 250.0), *requests(5, 5_000.0)])
    assert advice.gaps == {"p50": pytest.approx(40), "p90": pytest.approx(40), "p99": pytest.approx(40),
                           "p99.9": pytest.approx(40)}  # fmt: skip
    assert advice.window == 60
    advice = advised([*requests(9_900, 40.0), *requests(100, 250.0)])
    assert advice.window == 300
    assert advice.split == {5: 1.0, 10: 1.0, 30: 1.0, 60: pytest.approx(0.01), 1: 1.0}
    assert (
        "share of records split by a shorter window: 1s 100.00%, 5s 100.00%, 10s 100.00%, 30s 100.00%, 1m 1.00%"
        in "".join(advice.lines)
    )


def test_a_chain_is_one_record_and_a_greater_gap_begins_another() -> None:
    chain = [float(second) for second in range(0, 900, 9)]
    advice = advised([[start + second for second in chain] for start in range(0, 86_400, 1_000)])
    assert (advice.window, advice.split[5]) == (10, 1.0)
    twice = advised([[*chain, DAY, DAY + 9], *requests(2_000, 9.0)])
    assert (twice.window, twice.split[5]) == (10, 1.0)


def test_keys_that_change_for_ever_get_no_window() -> None:
    chance = random.Random(1)
    advice = advised([sorted(chance.uniform(0, 7 * DAY) for _ in range(5)) for _ in range(500)])
    assert advice.window is None
    assert any("window: forever (in force: 3h): gaps are as long" in line for line in advice.lines)


def test_what_cannot_be_known_is_not_proposed() -> None:
    assert advised([]).lines[1] == "  the log shows no change: convert some, and ask again"
    lines = advised([[0.0], [60.0]]).lines
    assert "  window: nothing to propose, as no key has two changes (in force: 3h)" in lines
    assert not any("lateness" in line for line in lines)


def test_lateness_holds_nearly_all_delays_and_refused_lines_are_told() -> None:
    advice = advised(requests(10, 1.0), delays=(-3.0, *[20.0] * 9_980, *[4_000.0] * 19), too_late=12)
    assert advice.lateness == 7_200
    assert "12 lines of the last week were too late and are not among these" in "".join(advice.lines)
    assert advised(requests(10, 1.0), delays=(2.0,)).lateness == 300


def test_forever_is_advised_against_where_much_is_written_for_little() -> None:
    sparse = [[DAY * number / 1_000] for number in range(1_000)]
    few, many = (
        advise(
            "log.request",
            replace(advised([]).in_force, publish=PublishPolicy(dirty=0.01)),
            ChangeSample(days=1, log_changes=1_000 * one_of, one_of=one_of, histories=sparse, delays=()),
        ).lines[-1]
        for one_of in (1, 1_000)
    )
    assert few == "  window: forever would write 100.0 rows for each change"
    assert many == "  window: forever would write 100.0 rows for each change, above 50: not for this table"


def test_what_forever_costs_is_rows_of_a_bucket_for_changes_of_a_rewrite() -> None:
    policy = PublishPolicy(every_seconds=300, dirty=0.1, stale_seconds=3_600)
    assert expected_forever(1_000_000, 1_000, policy) == pytest.approx(10)  # dirty before it is stale
    assert expected_forever(36_000_000, 10, policy) == pytest.approx(1_000)  # stale, with 36,000 changes
    assert expected_forever(0, 0, policy) == 0
