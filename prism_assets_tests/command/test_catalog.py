"""`prism catalog`, and the catalog in `prism local up`: tables held by others, and repeated publication."""

from __future__ import annotations

from typing import Any

import pytest
from rich.console import Console

from prism_assets.domain.errors import TerminalError
from prism_assets.metadata.leases import LeaseKind
from prism_assets_tests.builders import some_rows, utc
from prism_assets_tests.command.prism import Prism
from prism_assets_tests.stages.catalogs import held_all_the_time
from prism_assets_tests.stages.test_merge import a_closed_day
from prism_assets_tests.stages.test_publish import AFTER, late_rows
from prism_assets_tests.world import World
from prism_local.reports import StackReport
from prism_local.republish import republish

DAY = "2026-03-01"
STARTED = StackReport(services=(), started=("aws",), seconds=1.0, env_file="env", catalog_empty=True)


@pytest.fixture
def closed(prism: Prism) -> Prism:
    """A closed, merged day that the next run would switch, and a day to be closed."""
    a_closed_day(prism.world)
    prism.world.drop(some_rows(2, utc("2026-03-02T00:05")))
    prism.world.stream(AFTER)
    prism.world.merge(AFTER)
    prism.world.catalog(f"{DAY}T12:00", republish=True)
    prism.set(lease_seconds="1")
    return prism


def forget(world: World) -> None:
    """Plays a stop of the local Glue."""
    catalog: Any = world.glue
    catalog._client.delete_table(DatabaseName=f"{world.settings.glue_database_prefix}log", Name="events")


def states(world: World) -> list[str]:
    return [world.status(day, AFTER).state for day in (DAY, "2026-03-02")]


def table_id(world: World) -> int:
    return world.context.choose_tables(None)[0].table_id


def test_a_table_that_stays_another_runs_fails_the_command_and_is_named(closed: Prism) -> None:
    world = closed.world
    late_rows(world)
    with held_all_the_time(world, LeaseKind.CATALOG, [table_id(world)]):
        done = closed("catalog", "--now", f"{AFTER}:00Z")
        assert "log.events: is being published by another, since 2" in closed.ok("status", "--now", f"{AFTER}:00Z").out
        once = closed("run", "--now", f"{AFTER}:00Z")
    for run in (done, once):
        assert run.status == 1
        assert "log.events: another catalog run is working on it (another, since 2" in run.err
        assert "nothing was done; repeat when that has ended" in run.err
    closed.ok("catalog", "--now", f"{AFTER}:00Z")
    assert "is being published" not in closed.ok("status", "--now", f"{AFTER}:00Z").out


def test_status_says_that_a_publication_was_not_seen_to_end(closed: Prism) -> None:
    with closed.world.context.database.begin() as connection:
        connection.exec_driver_sql(
            "INSERT INTO prism_publication_intents "
            "(prism_table_id, publisher, lease_token, worker, start_time, expire_time) "
            "SELECT prism_table_id, 'glue', gen_random_uuid(), 'host:1', '2026-03-02 00:01Z', now() FROM prism_tables"
        )
    assert (
        "log.events: waits for the next catalog run, to be compared: a publication by host:1, begun at "
        "2026-03-02 00:01:00Z, was not seen to end"
    ) in closed.ok("status", "--now", f"{AFTER}:00Z").out
    assert closed.ok("status", "--now", f"{AFTER}:00Z", "--json").json[0]["findings"][0]["kind"] == "compare"


def test_republishing_switches_and_closes_nothing_whatever_the_clock_says(closed: Prism) -> None:
    world = closed.world
    before, rows = states(world), world.ids()
    assert before == ["closed", "live"]
    forget(world)
    late = ("--now", "2026-03-09T00:00:00Z")
    steps = closed.ok("catalog", "--republish", "--dry-run", *late).out.splitlines()
    assert steps == [
        "log.events: define it in the catalog",
        f"log.events {DAY}: publish again what is recorded",
        "log.events 2026-03-02: publish again what is recorded",
    ]
    done = closed.ok("catalog", "--republish", *late).out
    assert "log.events: created in the catalog" in done
    assert done.count("published s3://lake/") == 2
    assert (states(world), world.ids()) == (before, rows)
    closed.ok("catalog", *late)
    assert states(world) == ["switched", "closed"]


def test_starting_the_local_stack_publishes_what_is_recorded_and_says_so(
    closed: Prism, capsys: pytest.CaptureFixture[str]
) -> None:
    world = closed.world
    before, rows = states(world), world.ids()
    forget(world)
    republish(STARTED, Console())
    assert "published again from PostgreSQL: 1 table, 2 partitions" in capsys.readouterr().out
    assert (states(world), world.ids()) == (before, rows)


def test_starting_the_local_stack_waits_for_a_run_that_died(closed: Prism) -> None:
    world = closed.world
    rows = world.ids()
    forget(world)
    with world.context.database.begin() as connection:
        connection.exec_driver_sql(
            "INSERT INTO prism_leases SELECT 'catalog', prism_table_id, gen_random_uuid(), 'dead', now(), now() "
            "FROM prism_tables"
        )
    republish(STARTED, Console())
    assert world.ids() == rows


def test_starting_the_local_stack_fails_where_a_table_could_not_be_published_again(closed: Prism) -> None:
    world = closed.world
    forget(world)
    with (
        held_all_the_time(world, LeaseKind.CATALOG, [table_id(world)]),
        pytest.raises(TerminalError, match="their catalog is not complete") as told,
    ):
        republish(STARTED, Console())
    assert "log.events: another catalog run is working on it (another, since 2" in str(told.value)
