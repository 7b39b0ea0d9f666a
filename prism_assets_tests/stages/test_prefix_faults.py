"""A death, a failure, or work on one table of a shared prefix leaves the other tables as they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from prism_assets import failpoints
from prism_assets.stages.erase.run import run_erase
from prism_assets.stages.gc.run import run_gc
from prism_assets.stages.replay.run import run_replay
from prism_assets.stages.stream.commit import release_batch
from prism_assets.stages.stream.plan import start_batch
from prism_assets.stages.stream.run import run_stream
from prism_assets.stages.stream.unread import give_up_object, retry_object
from prism_assets_tests.builders import utc
from prism_assets_tests.stages.shared_prefix import (
    ACCOUNTS,
    LATER,
    NOON,
    WIDER,
    a_share,
    finish,
    ledgers,
    pairs,
    put,
    taking,
    undivided,
)
from prism_assets_tests.world import World


def test_a_batch_that_failed_gives_each_table_its_own_try(app: World) -> None:
    found = put(app, "view", "signup")
    app.discover(NOON)
    plan = start_batch(app.context, None)
    assert plan is not None
    release_batch(app.context, plan)
    finish(app)
    assert (app.ids("log.accounts"), app.ids("log.events")) == (found["signup"], found["view"])


@pytest.fixture
def faulty() -> Iterator[Callable[[str], None]]:
    """Makes a failpoint raise once."""

    def arm(point: str) -> None:
        failpoints.configure({"PRISM_FAILPOINTS": f"{point}=1*raise(InjectedFault)"})

    yield arm
    failpoints.configure({})


@pytest.mark.parametrize("point", ["discover.in_page", "discover.after_page", "discover.after_position"])
def test_a_death_of_a_listing_leaves_no_object_to_some_tables_only(
    app: World, faulty: Callable[[str], None], point: str
) -> None:
    found = put(app, "view", "signup")
    faulty(point)
    assert app.discover(NOON).errors
    assert all(tables == {"accounts", "events"} for tables in pairs(app).values())
    finish(app)
    assert (app.ids("log.accounts"), app.ids("log.events")) == (found["signup"], found["view"])
    assert undivided(app) == []


@pytest.mark.parametrize("point", ["stream.after_put_quarantine", "stream.in_commit", "stream.after_commit"])
def test_a_death_of_a_batch_leaves_each_line_to_one_table(
    app: World, faulty: Callable[[str], None], point: str
) -> None:
    found = put(app, "view", "signup", extra=[b"{"])
    app.discover(NOON)
    faulty(point)
    with suppress(failpoints.InjectedFault):
        run_stream(app.context, now=utc(NOON))
    with app.context.database.begin() as connection:
        connection.exec_driver_sql("UPDATE prism_stream_batches SET heartbeat_time = to_timestamp(0)")
        connection.exec_driver_sql("UPDATE prism_staging_objects SET retry_time = NULL")
    for _ in range(3):
        finish(app)
    assert (app.ids("log.accounts"), app.ids("log.events")) == (found["signup"], found["view"])
    assert ledgers(app) == {"accounts": (3, 1, 0, 2), "events": (3, 1, 1, 1)}
    assert undivided(app) == []


@pytest.mark.parametrize("point", ["apply.in_table", "apply.after_deal"])
def test_a_death_of_an_apply_changes_no_route_and_no_object(
    app: World, faulty: Callable[[str], None], point: str
) -> None:
    put(app, "view")
    app.discover(NOON)
    before = pairs(app)
    faulty(point)
    with pytest.raises(failpoints.InjectedFault):
        app.apply(WIDER, a_share("log.views", taking("click")))
    assert pairs(app) == before
    app.apply(WIDER, a_share("log.views", taking("click")))
    assert pairs(app) == {key: {"accounts", "events", "views"} for key in before}


def test_an_erasure_of_one_table_leaves_the_rows_and_ledgers_of_the_others(app: World) -> None:
    found = put(app, "view", "signup", "login", extra=[b"{"])
    finish(app)
    gone, kept = found["signup"][0], found["login"]
    others = (app.ids("log.events"), ledgers(app)["events"])
    run_erase(app.context, "log.accounts", f"id = {gone}", rows=1, now=utc(LATER))
    finish(app)
    assert app.ids("log.accounts") == kept
    assert (app.ids("log.events"), ledgers(app)["events"]) == others
    later = put(app, "signup", "view")
    finish(app)
    assert app.ids("log.accounts") == sorted(kept + later["signup"])
    assert undivided(app) == []


def test_a_replay_of_one_table_leaves_the_others(app: World) -> None:
    put(app, "view", extra=[b'{"kind": "signup", "id": 1, "when": "2026-03-01T12:00:00Z"}'])
    finish(app)
    assert ledgers(app) == {"accounts": (2, 0, 1, 1), "events": (2, 1, 0, 1)}
    others = (app.ids("log.events"), ledgers(app)["events"])
    app.apply(ACCOUNTS.replace("{name: time,", "{name: time, source: [time, when],"))
    assert run_replay(app.context, "log.accounts", now=utc(LATER)).errors == ()
    finish(app)
    assert app.ids("log.accounts") == [1]
    assert ledgers(app)["accounts"] == (2, 1, 0, 1)
    assert (app.ids("log.events"), ledgers(app)["events"]) == others
    assert undivided(app) == []


def test_garbage_collection_of_one_table_leaves_the_objects_of_the_others(app: World) -> None:
    put(app, "view", "signup")
    finish(app)
    before = (app.ids("log.accounts"), app.ids("log.events"), sorted((app.root / "buckets" / "staging").rglob("*.gz")))
    assert run_gc(app.context, names=["log.accounts"], now=utc("2026-04-01T00:00")).errors == ()
    assert (
        app.ids("log.accounts"),
        app.ids("log.events"),
        sorted((app.root / "buckets" / "staging").rglob("*.gz")),
    ) == before
    assert undivided(app) == []


def test_a_given_up_object_of_one_table_is_read_by_the_other(app: World) -> None:
    found = put(app, "view", "signup")
    app.discover(NOON)
    (key,) = pairs(app)
    give_up_object(app.context, f"s3://staging/{key}", ["log.accounts"])
    finish(app)
    assert (app.ids("log.accounts"), app.ids("log.events")) == ([], found["view"])
    assert undivided(app) == []
    retry_object(app.context, f"s3://staging/{key}")
    finish(app)
    assert app.ids("log.accounts") == found["signup"]
    assert undivided(app) == []
