"""Records of join tables, from lines in staging to what readers of the catalog see, held against the model."""

from __future__ import annotations

from dataclasses import replace

import pytest

from prism_assets.stages.findings.registry import find_work
from prism_assets_tests.builders import utc
from prism_assets_tests.requests import Requests, a_join_table, back, front, some_changes
from prism_assets_tests.stages.aging import gc, hours_pass, keys
from prism_assets_tests.world import World

DAY = "2026-03-01"
NOON = f"{DAY}T12:00"


@pytest.fixture
def requests(world: World) -> Requests:
    world.apply(a_join_table())
    return Requests(world)


def test_both_sides_of_a_request_are_one_row(requests: Requests) -> None:
    requests.arrive([("front", front("a", NOON, "home"))], f"{DAY}T12:01")
    assert [row[0::3] for row in requests.show(f"{DAY}T12:01")] == [("a", "home")]
    requests.arrive([("back", back("a", f"{DAY}T12:00:02", 1, 200))], f"{DAY}T12:02")
    assert [(row[0], row[3], row[5]) for row in requests.show(f"{DAY}T12:02")] == [("a", "home", 200)]
    assert requests.seen() == requests.wanted()


def test_changes_across_midnight_are_one_row_of_the_first_day(requests: Requests) -> None:
    requests.arrive([("front", front("a", f"{DAY}T23:59:59", "home"))], f"{DAY}T23:59:59")
    requests.show(f"{DAY}T23:59:59")
    requests.arrive([("back", back("a", "2026-03-02T00:00:01", 1, 200))], "2026-03-02T00:01")
    assert requests.show("2026-03-02T00:01") == requests.wanted()
    assert requests.world.query("SELECT count(*) FROM log.request WHERE dt = '2026-03-01'") == [(1,)]


def test_a_delete_hides_a_record_and_a_later_change_brings_it_back(requests: Requests) -> None:
    requests.arrive([("back", back("a", NOON, 3, op="D")), ("back", back("a", NOON, 2, 200))], NOON)
    assert requests.show(NOON) == []
    requests.arrive([("back", back("a", f"{DAY}T12:01", 1, 404))], f"{DAY}T12:01")
    assert requests.show(f"{DAY}T12:01") == []
    requests.arrive([("back", back("a", f"{DAY}T12:02", 4, 500))], f"{DAY}T12:02")
    assert requests.show(f"{DAY}T12:02") == requests.wanted() != []


def test_a_day_is_in_no_catalog_before_it_has_a_record_to_show(world: World) -> None:
    world.apply(a_join_table() + "symlink: true\n")
    requests = Requests(world)
    requests.arrive([("back", back("a", NOON, 3, op="D"))], NOON)
    assert requests.show(NOON) == []
    world.catalog(NOON, republish=True)
    table = requests.table
    for catalog in (world.glue, world.symlinks):
        assert catalog.shown_locations(table, [utc(NOON).date()]) == {}
    assert find_work(world.context, "catalog", now=utc(NOON)) == []
    requests.arrive([("back", back("a", NOON, 4, 200))], NOON)
    assert requests.show(NOON) == requests.wanted() != []
    requests.arrive([("back", back("a", NOON, 5, op="D"))], NOON)
    assert requests.show(NOON) == []
    (place,) = world.glue.shown_locations(table, [utc(NOON).date()]).values()
    assert not place.endswith("/")  # no folder that readers list


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("owner", [False, True], ids=["no owner", "an owner"])
def test_records_are_a_function_of_the_changes_whenever_they_are_folded(world: World, seed: int, owner: bool) -> None:
    world.apply(a_join_table(owner=owner))
    requests = Requests(world)
    changes = some_changes(seed, 120, f"{DAY}T21:00", requests=15, hours=6)
    for start in range(0, len(changes), 40):
        requests.arrive(changes[start : start + 40], f"{DAY}T21:00")
        assert requests.show(f"{DAY}T21:00") == requests.wanted()
    assert len(requests.changes()) == 120


def test_folding_again_changes_nothing(requests: Requests) -> None:
    requests.arrive(some_changes(1, 30, NOON, requests=5, hours=2), NOON)
    shown = requests.show(NOON)
    assert requests.fold(NOON).folds == ()
    assert not requests.world.catalog(NOON).changed
    assert requests.seen() == shown


def test_changes_that_touch_little_wait_and_are_folded_with_others(world: World) -> None:
    world.apply(a_join_table(dirty=0.9))
    requests = Requests(world)
    first = [("front", front(f"r{number}", NOON, "home")) for number in range(40)]
    requests.arrive(first, NOON)
    assert requests.show(NOON) == requests.wanted()
    requests.arrive([("back", back("r1", NOON, 1, 200))], NOON)
    (fold,) = requests.fold(NOON).folds
    assert (fold.pending, fold.counts.changes_folded) == (1, 0)
    requests.arrive([("back", back(f"r{number}", NOON, 1, 404)) for number in range(2, 40)], NOON)
    assert requests.show(NOON) == requests.wanted()


def test_a_settled_record_stays_and_what_comes_too_late_is_set_aside(requests: Requests) -> None:
    requests.arrive([("front", front("a", NOON, "home"))], NOON)
    requests.show(NOON)
    requests.world.discover(f"{DAY}T13:30")
    (wanted,) = requests.show(f"{DAY}T13:30")
    requests.world.discover(f"{DAY}T13:36")
    (fold,) = requests.fold(f"{DAY}T13:36").folds
    assert (fold.reason, fold.counts.records_settled, fold.counts.rows_written) == ("records settle", 1, 0)
    requests.arrive([("back", back("a", NOON, 1, 200))], f"{DAY}T13:37")
    assert requests.show(f"{DAY}T13:37") == [wanted]
    assert requests.fold(f"{DAY}T13:38").folds == ()
    requests.arrive([("back", back("a", f"{DAY}T13:36", 1, 200))], f"{DAY}T13:38")
    assert [row[3:] for row in requests.show(f"{DAY}T13:38")] == [("home", None, None), (None, 1, 200)]


def test_records_that_go_when_they_settle_are_gone_for_readers_and_in_the_store(world: World) -> None:
    world.apply(a_join_table(after="delete"))
    requests = Requests(world)
    requests.arrive([("front", front("a", NOON, "home")), ("front", front("b", f"{DAY}T12:10"))], NOON)
    assert len(requests.show(NOON)) == 2
    requests.world.discover(f"{DAY}T13:36")
    assert [row[0] for row in requests.show(f"{DAY}T13:36")] == ["b"]
    requests.world.discover(f"{DAY}T14:00")
    assert requests.show(f"{DAY}T14:00") == []


def test_a_fold_takes_no_more_bytes_than_it_may_and_the_next_goes_on(requests: Requests) -> None:
    settings = requests.world.settings.model_copy(update={"fold_max_bytes": 1})
    requests.world.context = replace(requests.world.context, settings=settings)
    for number in range(3):
        requests.arrive([("front", front(f"r{number}", NOON, "home"))], NOON)
    assert [fold.is_whole for fold in requests.fold(NOON).folds] == [False, False, True]
    requests.world.catalog(NOON)
    assert requests.seen() == requests.wanted() != []


def test_what_a_fold_has_replaced_is_collected_and_what_the_next_reads_is_not(requests: Requests) -> None:
    for number in range(3):
        requests.arrive([("front", front("a", NOON, "home", sent=number))], NOON)
        requests.show(NOON)
    before = keys(requests.world, "/records/")
    hours_pass(requests.world, 100)
    with requests.world.context.database.begin() as connection:
        connection.exec_driver_sql("UPDATE prism_rewrites SET finish_time = finish_time - interval '100 hours'")
    gc(requests.world)
    assert 0 < len(keys(requests.world, "/records/")) < len(before)
    assert requests.seen() == requests.wanted()
    requests.arrive([("back", back("a", NOON, 1, 200))], NOON)
    assert requests.show(NOON) == requests.wanted()
