"""Makes the pictures of the documentation: a fresh stack, two tables, and the UI in Chromium."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path

from bench.browser import find_chromium
from prism_assets_tests.defs.server import DagsterServer
from prism_assets_tests.ui.shop import DAYS, ORDERS, VISITS, a_shop, fill, their_reports
from prism_local.stack import LocalStack

IMAGES = Path(__file__).parents[2] / "docs" / "images"


@contextmanager
def shop_in_dagster() -> Iterator[DagsterServer]:
    """Runs Dagster over a fresh local stack with the shop's tables and objects. Removes everything afterwards."""
    with tempfile.TemporaryDirectory(prefix="prism-pictures-") as folder:
        root = Path(folder)
        stack = LocalStack(root / ".prism")
        stack.up(lambda service, message: print(f"{service}: {message}", flush=True))
        try:
            made = {**stack.environment(), "PRISM_TABLES_DIR": str(a_shop(root)), "PRISM_SENSOR_SECONDS": "5"}
            os.environ.update(made)
            fill(made, datetime.now(timezone.utc).replace(microsecond=0))
            (root / "dagster").mkdir()
            with DagsterServer(root / "dagster", made, programs=[their_reports(root)]) as server:
                yield server
        finally:
            stack.reset()


def main() -> int:
    """Writes all pictures; exit status 2 where there is no Chromium."""
    chromium = find_chromium()
    if chromium is None:
        print("the pictures need Chromium and playwright: install chromium and the extra dev", file=sys.stderr)
        return 2
    from prism_assets_tests.ui.pages import browsing

    IMAGES.mkdir(exist_ok=True)
    today = datetime.now(timezone.utc).date()
    with shop_in_dagster() as server, browsing(chromium, server) as ui:

        def save(name: str) -> None:
            ui.page.screenshot(path=IMAGES / f"{name}.png")
            print(f"docs/images/{name}.png", flush=True)

        for table in (VISITS, ORDERS):
            ui.await_backfill(ui.backfill(table, today - timedelta(days=DAYS - 1), today), 300)
        save("backfill")
        ui.group(ORDERS)
        save("lineage")
        ui.lineage_into(ORDERS, "weekly_report")
        save("lineage-project")
        ui.partitions_of(ORDERS, "live")
        save("partitions")
        ui.asset(ORDERS, "merged")
        save("asset")
        ui.check(VISITS, "quarantine_rate")
        save("check")
        ui.sensor("new_objects")
        save("sensor")
    return 0


if __name__ == "__main__":
    sys.exit(main())
