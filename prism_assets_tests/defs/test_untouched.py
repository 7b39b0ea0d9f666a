"""The whole Dagster path: daemon and web server running, objects dropped in, no hand on it, rows readable."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta, timezone

import psutil
import pytest
from dagster import AssetKey

from prism_assets.defs.keys import asset_key, part_of
from prism_assets_tests.builders import a_table, some_rows
from prism_assets_tests.defs.outside import BUCKET, Outside
from prism_assets_tests.defs.server import DagsterServer
from prism_assets_tests.defs.tables import a_folder

pytestmark = [pytest.mark.stack, pytest.mark.filterwarnings("default:unclosed:ResourceWarning")]

TABLE = "untouched.clicks"
PATIENCE = 120.0


@pytest.fixture(scope="module")
def environment(stack: Mapping[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, str]]:
    """The stack's settings, with one table; also in the environment of the test, for its reader."""
    folder = a_folder(tmp_path_factory.mktemp("tables"), a_table(TABLE, bucket=BUCKET))
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
    psutil.wait_procs(left, timeout=60)
    assert not [process for process in left if _lives(process)]


def _lives(process: psutil.Process) -> bool:
    """Orphans that ended are zombies until the init process of the machine looks after them."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_objects_become_rows_with_no_hand_on_it_and_a_day_can_be_made_by_hand(
    environment: Mapping[str, str], server: DagsterServer
) -> None:
    outside = Outside(environment, TABLE)
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

    keys = [asset_key(TABLE, part).path for part in ("live", "merged", "catalog")]
    run = server.finished(server.materialize(keys, now.date().isoformat()), PATIENCE)
    assert run["status"] == "SUCCESS"
    made = {
        part_of(AssetKey(event["assetKey"]["path"]))
        for event in run["assetMaterializations"]
        if event["partition"] == now.date().isoformat()
    }
    assert made == {"live", "merged", "catalog"}
    assert outside.ids() == ids
