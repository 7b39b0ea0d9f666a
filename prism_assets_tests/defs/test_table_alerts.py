"""People are told of failed checks and of findings for them: once, again after a day, and when it ended."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest
from dagster import DagsterInstance

from prism_assets.defs.location import Location
from prism_assets.defs.sensors import table_alerts
from prism_assets.stages.discover.listings import run_discover
from prism_assets.stages.stream.run import run_stream
from prism_assets.stages.stream.unread import retry_object
from prism_assets_tests.alerts.test_senders import Receiver, receiver
from prism_assets_tests.builders import a_table, some_rows
from prism_assets_tests.defs.tables import a_location
from prism_assets_tests.defs.test_checks import said_by
from prism_assets_tests.defs.test_runs import NOW
from prism_assets_tests.defs.test_sensors import tick
from prism_assets_tests.stages.engines import rest_is_over
from prism_assets_tests.world import World

__all__ = ["receiver"]

# Dagster calls its own deprecated code for a resource within another one.
pytestmark = pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run is deprecated:DeprecationWarning")
UNREAD = "log.events: check unread_objects"


@pytest.fixture
def location(settled: World, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> Location:
    """Two tables, enough time for all checks, and alerts to the receiver."""
    monkeypatch.setattr("prism_assets.defs.sensors.table_checks._ENOUGH_SECONDS", 3_600.0)
    monkeypatch.setenv("PRISM_ALERT", receiver.target)
    settled.apply(a_table("log.events"))
    return a_location(settled.root, a_table("log.events"))


def break_table(world: World) -> tuple[Path, bytes]:
    """Lets an object vanish until it is given up. Returns its path and its content."""
    key = world.drop(some_rows(3, NOW))
    run_discover(world.context, now=NOW)
    path = world.root / "buckets" / "staging" / key
    content = path.read_bytes()
    path.unlink()
    for _ in range(world.settings.max_attempts):
        rest_is_over(world)
        run_stream(world.context, now=NOW)
    return path, content


def test_a_broken_table_is_told_once_and_told_again_when_it_is_mended(
    settled: World, instance: DagsterInstance, location: Location, receiver: Receiver
) -> None:
    first = tick(instance, location, "table_checks")
    assert receiver.bodies == []
    path, content = break_table(settled)
    broken = tick(instance, location, "table_checks", first.cursor)
    (told,) = receiver.bodies
    lines = told["text"].splitlines()
    assert lines[0] == "prism: 2 need attention"
    assert lines[1].startswith("- log.events: 1 staging object is given up")
    assert lines[2].startswith(f"- {UNREAD}: ")
    assert all(path.name in line for line in lines[1:]), "the check and the finding name the object"
    assert "told by webhook: prism: 2 need attention" in said_by(broken)
    still = tick(instance, location, "table_checks", broken.cursor)
    assert len(receiver.bodies) == 1, "the same is told once"
    path.write_bytes(content)
    retry_object(settled.context, f"s3://staging/{path.relative_to(settled.root / 'buckets' / 'staging')}")
    run_stream(settled.context, now=NOW)
    mended = tick(instance, location, "table_checks", still.cursor)
    assert receiver.bodies[1]["text"].startswith("prism: 2 ended\n- ended: log.events")
    assert UNREAD in receiver.bodies[1]["text"]
    assert json.loads(str(mended.cursor))["alerted"] == {}


def test_what_lasts_is_told_again_after_a_day(
    settled: World, instance: DagsterInstance, location: Location, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_table(settled)
    first = tick(instance, location, "table_checks")
    monkeypatch.setattr(table_alerts, "_AGAIN", timedelta(0))
    tick(instance, location, "table_checks", first.cursor)
    assert [body["text"].splitlines()[0] for body in receiver.bodies] == [
        "prism: 2 need attention",
        "prism: 2 still do",
    ]


def test_a_message_that_was_not_taken_is_sent_by_the_next_tick(
    settled: World, instance: DagsterInstance, location: Location, receiver: Receiver
) -> None:
    break_table(settled)
    receiver.statuses = [404]
    first = tick(instance, location, "table_checks")
    assert "the next tick tries again" in said_by(first)
    second = tick(instance, location, "table_checks", first.cursor)
    assert receiver.bodies[0]["text"].splitlines()[0] == receiver.bodies[1]["text"].splitlines()[0]
    assert "told by webhook" in said_by(second)


def test_a_cursor_without_alerts_is_of_an_earlier_version(
    settled: World, instance: DagsterInstance, location: Location, receiver: Receiver
) -> None:
    first = tick(instance, location, "table_checks")
    document = json.loads(str(first.cursor))
    del document["alerted"]
    again = tick(instance, location, "table_checks", json.dumps(document))
    assert not again.asset_events, "it still knows what it reported"
    assert receiver.bodies == []


def test_a_full_cursor_counts_further_problems_once_and_ends_none(
    settled: World, instance: DagsterInstance, location: Location, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The finding comes first by name, and must not push the older failed check out."""
    break_table(settled)
    first = tick(instance, location, "table_checks")
    document = json.loads(str(first.cursor))
    document["alerted"] = {UNREAD: document["alerted"][UNREAD]}
    monkeypatch.setattr(table_alerts, "_MOST_KEYS", 1)
    del receiver.bodies[:]
    full = tick(instance, location, "table_checks", json.dumps(document))
    (told,) = receiver.bodies
    assert told["text"].splitlines() == [
        "prism: 1 needs attention",
        "- further problems: 1. `prism status` shows all",
    ]
    assert set(json.loads(str(full.cursor))["alerted"]) == {UNREAD, "further problems"}
    tick(instance, location, "table_checks", full.cursor)
    assert len(receiver.bodies) == 1, "told once"
