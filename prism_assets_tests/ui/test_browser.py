"""The UI in Chromium: lineage, a day, a backfill, a failed check, the ticks of a sensor."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from bench.browser import find_chromium
from prism_assets.defs.keys import asset_key
from prism_assets_tests.defs.server import DagsterServer
from prism_assets_tests.ui.shop import ORDERS, VISITS, a_shop, fill, their_reports

DAYS = 2
CHROMIUM = find_chromium()
pytestmark = [
    pytest.mark.stack,
    pytest.mark.browser,
    pytest.mark.filterwarnings("default:unclosed:ResourceWarning"),
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium, or no playwright: install chromium and the extra dev"),
]
STATUS = """
query($keys: [AssetKeyInput!]!) { assetNodes(assetKeys: $keys) {
  assetKey { path } assetMaterializations(limit: 500) { partition } } }
"""


@pytest.fixture(scope="module")
def server(stack: Mapping[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[DagsterServer]:
    root = tmp_path_factory.mktemp("shop")
    folder = a_shop(root)
    made = {**stack, "PRISM_TABLES_DIR": str(folder), "PRISM_SENSOR_SECONDS": "5"}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in made.items():
            patch.setenv(name, value)
        fill(made, datetime.now(timezone.utc).replace(microsecond=0), DAYS)
        with DagsterServer(tmp_path_factory.mktemp("dagster"), made, programs=[their_reports(root)]) as running:
            yield running


def materialized(server: DagsterServer, keys: Sequence[Sequence[str]]) -> dict[tuple[str, ...], set[str]]:
    """Returns the materialised days of each asset."""
    nodes = server.ask(STATUS, {"keys": [{"path": key} for key in keys]})["assetNodes"]
    return {
        tuple(node["assetKey"]["path"]): {event["partition"] for event in node["assetMaterializations"]}
        for node in nodes
    }


def test_a_person_finds_the_lineage_makes_days_and_reads_what_is_wrong(server: DagsterServer, tmp_path: Path) -> None:
    from prism_assets_tests.ui.pages import browsing

    assert CHROMIUM is not None
    today = datetime.now(timezone.utc).date()
    days = [today - timedelta(days=back) for back in range(DAYS)]
    keys = [asset_key(table, part).path for table in (ORDERS, VISITS) for part in ("live", "merged", "catalog")]
    with browsing(CHROMIUM, server) as ui:
        try:
            places = ui.lineage_of(ORDERS)
            assert places["staging"] < places["live"] < places["merged"] < places["catalog"]

            ui.lineage_into(ORDERS, "weekly_report")

            run = server.finished(ui.materialize(ORDERS, "live", today), 120)
            assert run["status"] == "SUCCESS"
            assert today.isoformat() in {event["partition"] for event in run["assetMaterializations"]}

            for table in (ORDERS, VISITS):
                ui.await_backfill(ui.backfill(table, days[-1], days[0]), 300)
            wanted = {day.isoformat() for day in days}
            made = materialized(server, keys)
            assert len(made) == len(keys)
            assert all(wanted <= found for found in made.values()), made
            ui.partitions_of(VISITS, "catalog")

            page = ui.check(VISITS, "quarantine_rate").inner_text()
            assert "5 of 105 lines of the last day are quarantined (4.76%), above the limit of 0.10%" in page
            assert "5 bad_json" in page

            ui.sensor("new_objects")
            # Streams of tables left by other tests in the database are listed, too.
            assert re.search(
                r"Skip reason:\s+0 new of \d+ objects in \d+ streams listed; \d+ pending", ui.reason_of_newest_skip()
            )
        except BaseException:
            ui.page.screenshot(path=tmp_path / "failed.png")
            print(f"what the page showed: {tmp_path / 'failed.png'}")
            raise
