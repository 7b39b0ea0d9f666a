"""A table file is added while everything runs: one reload, no restart, and its rows are readable."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path

import pytest

from prism_assets_tests.builders import a_table, some_rows
from prism_assets_tests.defs.outside import BUCKET, Outside
from prism_assets_tests.defs.server import DagsterServer
from prism_assets_tests.defs.tables import a_folder

pytestmark = [pytest.mark.stack, pytest.mark.filterwarnings("default:unclosed:ResourceWarning")]

OLD, NEW = "reloaded.before", "reloaded.after"
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


def test_a_new_table_file_is_there_after_a_reload_and_its_rows_become_readable(
    environment: Mapping[str, str], server: DagsterServer
) -> None:
    now = datetime.now(timezone.utc).replace(microsecond=0)
    before, after = Outside(environment, OLD), Outside(environment, NEW)
    ids_before, ids_after = before.drop(some_rows(50, now)), after.drop(some_rows(50, now))
    print(f"a table from the start: readable after {before.seconds_until(ids_before, server, PATIENCE):.1f} s")
    processes = server.services()
    assert len(processes) == 4

    new_file = Path(environment["PRISM_TABLES_DIR"]) / "new.yaml"
    new_file.write_text(a_table(NEW, bucket=BUCKET))
    assert not [key for key in server.asset_keys() if "after" in key]
    server.reload()
    parts = {key[-1] for key in server.asset_keys() if key[:3] == ["prism", *NEW.split(".")]}
    assert parts == {"staging", "live", "merged", "catalog"}

    print(f"the new table: readable after {after.seconds_until(ids_after, server, PATIENCE):.1f} s")
    ids_before += before.drop(some_rows(50, now))
    print(f"the old table goes on: readable after {before.seconds_until(ids_before, server, PATIENCE):.1f} s")
    assert server.services() == processes
