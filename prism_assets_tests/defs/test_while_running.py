"""Daemon and web server run: objects become rows with no hand on it; people add a table file, and cancel a backfill."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from dagster import AssetKey

from prism_assets.defs.keys import asset_key, part_of
from prism_assets_tests.builders import a_table, some_rows
from prism_assets_tests.defs.outside import BUCKET, Outside
from prism_assets_tests.defs.server import DagsterServer
from prism_assets_tests.defs.tables import a_folder
from prism_local import processes

pytestmark = [pytest.mark.stack, pytest.mark.filterwarnings("default:unclosed:ResourceWarning")]

OLD, NEW = "reloaded.before", "reloaded.after"
PARTS = ("staging", "live", "merged", "catalog")
PATIENCE = 300.0


@pytest.fixture(scope="module")
def environment(stack: Mapping[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, str]]:
    """The stack's settings, with one table; also in the environment of the test, for its reader."""
    folder = a_folder(tmp_path_factory.mktemp("tables"), a_table(OLD, bucket=BUCKET))
    made = {**stack, "PRISM_TABLES_DIR": str(folder), "PRISM_SENSOR_SECONDS": "5"}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in made.items():
            patch.setenv(name, value)
        yield made


@pytest.fixture(scope="module")
def server(environment: Mapping[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[DagsterServer]:
    with DagsterServer(tmp_path_factory.mktemp("dagster"), environment) as running:
        yield running
        left = running.family()
    # A run that was being started ends by itself when it finds its server gone.
    assert not processes.wait(left, 60)


def test_objects_become_rows_with_no_hand_on_it_and_a_day_can_be_made_by_hand(
    environment: Mapping[str, str], server: DagsterServer
) -> None:
    outside = Outside(environment, OLD)
    now = datetime.now(timezone.utc).replace(microsecond=0)
    yesterday = now - timedelta(days=1)
    batches = [some_rows(200, now - timedelta(minutes=5)), some_rows(200, yesterday)]
    for rows in batches:
        outside.drop(rows)
    ids = sorted(row["id"] for rows in batches for row in rows)
    print(f"first objects readable after {outside.seconds_until(ids, server, PATIENCE):.1f} s")

    late = some_rows(100, now)
    outside.drop(late)
    ids += [row["id"] for row in late]
    print(f"another object readable after {outside.seconds_until(ids, server, PATIENCE):.1f} s")

    keys = [asset_key(OLD, part).path for part in ("live", "merged", "catalog")]
    run = server.finished(server.materialize(keys, now.date().isoformat()), PATIENCE)
    assert run["status"] == "SUCCESS"
    made = {
        part_of(AssetKey(event["assetKey"]["path"]))
        for event in run["assetMaterializations"]
        if event["partition"] == now.date().isoformat()
    }
    assert made == {"live", "merged", "catalog"}
    assert outside.ids() == ids


def test_a_new_table_file_is_there_after_a_reload_and_its_rows_become_readable(
    environment: Mapping[str, str], server: DagsterServer
) -> None:
    now = datetime.now(timezone.utc).replace(microsecond=0)
    before, after = Outside(environment, OLD), Outside(environment, NEW)
    ids_before, ids_after = [*before.ids(), *before.drop(some_rows(50, now))], after.drop(some_rows(50, now))
    print(f"a table from the start: readable after {before.seconds_until(ids_before, server, PATIENCE):.1f} s")
    processes = server.services()
    assert len(processes) == 4

    new_file = Path(environment["PRISM_TABLES_DIR"]) / "new.yaml"
    new_file.write_text(a_table(NEW, bucket=BUCKET))
    assert asset_key(NEW, "live").path not in server.asset_keys()
    server.reload()
    assert [part for part in PARTS if asset_key(NEW, part).path not in server.asset_keys()] == []

    print(f"the new table: readable after {after.seconds_until(ids_after, server, PATIENCE):.1f} s")
    ids_before += before.drop(some_rows(50, now))
    print(f"the old table goes on: readable after {before.seconds_until(ids_before, server, PATIENCE):.1f} s")
    assert server.services() == processes


def test_a_cancelled_backfill_leaves_nothing_behind_and_can_be_done_again(
    environment: Mapping[str, str], server: DagsterServer, long: bool
) -> None:
    if not long:
        pytest.skip("two minutes: with --long")
    now = datetime.now(timezone.utc).replace(microsecond=0)
    days = [(now - timedelta(days=back)).date().isoformat() for back in range(2)]
    outside = Outside(environment, OLD)
    known = outside.ids()
    dropped = [outside.drop(some_rows(200, now - timedelta(days=back, minutes=5))) for back in range(2)]
    keys = [asset_key(OLD, part).path for part in PARTS[1:]]
    first = server.backfill(keys, days)
    _until(lambda: "STARTED" in server.run_states(first).values(), "no run of the backfill starts")
    server.cancel(first)
    _until(lambda: server.backfill_status(first) == "CANCELED", "the backfill is not cancelled")
    states = Counter(server.run_states(first).values())
    print(f"runs of the cancelled backfill: {dict(states)}")
    assert states.keys() <= {"CANCELED", "SUCCESS"}

    second = server.backfill(keys, days)
    _until(lambda: server.backfill_status(second) == "COMPLETED_SUCCESS", "the backfill does not end well")
    assert Counter(server.run_states(second).values()) == {"SUCCESS": 2}
    outside.seconds_until(sorted([*known, *(row for rows in dropped for row in rows)]), server, PATIENCE)


def _until(is_so: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.2)
