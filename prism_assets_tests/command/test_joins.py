"""`prism join`: results of its commands on the log of a join table."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from prism_assets_tests.builders import a_table
from prism_assets_tests.command.prism import Prism
from prism_assets_tests.command.test_errors import fails, in_one_line
from prism_assets_tests.requests import a_join_table, back, front

HOUR = timedelta(hours=1)


def test_advice_is_made_of_what_the_log_shows(prism: Prism) -> None:
    world, now = prism.world, datetime.now(timezone.utc)
    world.apply(a_join_table(window="1h", lateness="24h"), a_table())
    starts = [now - 3 * HOUR * number / 150 for number in range(150)]
    world.drop([front(f"r{number}", at, "home") for number, at in enumerate(starts)], stream="front")
    world.drop([back(f"r{number}", at + timedelta(seconds=40), 1) for number, at in enumerate(starts)], stream="back")
    prism.ok("run")

    (whole,) = prism.ok("join", "advise", "log.request", "--json").json
    assert (whole["sampled_changes"], whole["sampled_keys"], whole["one_key_of"]) == (300, 150, 1)
    assert (whole["window_seconds"], whole["window_in_force"]) == (60, 3600)
    assert {round(gap) for gap in whole["gap_seconds"].values()} == {40}
    assert 3 * 3600 - 120 < whole["send_delay_seconds"]["p99.9"] < 3 * 3600 + 60
    assert whole["lateness_seconds"] in (10_800, 21_600)
    assert {"window_seconds": 30, "share": 1.0} in whole["records_split"]
    said = prism.ok("join", "advise", "log.request").out
    assert "window: 1m (in force: 1h)" in said
    assert "lateness: " in said

    (part,) = prism.ok("join", "advise", "log.request", "--changes", "100", "--json").json
    assert part["one_key_of"] == 3
    assert 20 < part["sampled_keys"] < 90
    assert part["sampled_changes"] == 2 * part["sampled_keys"], "keys are sampled as a whole"

    done = prism("join", "advise", "log.events")
    fails(done, 2, "log.events is no join table")
    in_one_line(done)
