"""Actions of a person in Dagster's UI, in a real browser. Each method leaves the page at its result."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import date
from pathlib import Path

from playwright.sync_api import Locator, Page, expect, sync_playwright
from playwright.sync_api import TimeoutError as PlaywrightTimeout

from prism_assets.defs.keys import groups_of
from prism_assets_tests.defs.server import DagsterServer

PATIENCE = 300_000.0
"""Milliseconds to wait for an expected element. First visits of pages are slow on a busy machine."""
_CAME_TO_REST = 1_500.0
_UNTIL_OPEN = 10_000.0
_PARTS = ("staging", "live", "merged", "catalog")
_BACKFILL = "query { partitionBackfillsOrError(limit: 1) { ... on PartitionBackfills { results { id status } } } }"

_RUNS = "query { runsOrError(limit: 100) { ... on Runs { results { runId tags { key } } } } }"


class Ui:
    """Dagster's UI over a running server."""

    def __init__(self, page: Page, server: DagsterServer) -> None:
        self.page = page
        self._server = server
        page.set_default_timeout(PATIENCE)
        expect.set_options(timeout=PATIENCE)

    def lineage_of(self, table: str) -> dict[str, float]:
        """Opens the lineage of a table; returns how far to the right each of its assets stands, by its part."""
        self._open(f"{_asset(table, 'live')}?view=lineage")
        places: dict[str, float] = {}
        for part in _PARTS:
            node = self._node(f"{table.partition('.')[2]}_{part}")
            expect(node).to_be_visible()
            box = node.bounding_box()
            assert box is not None
            places[part] = box["x"]
        self.rest()
        return places

    def group(self, table: str) -> None:
        """Opens the lineage of a table: one group."""
        self._open(f"locations/prism_assets/asset-groups/{groups_of([table])[table]}")
        # From afar, nodes of a graph are drawn without tooltips.
        expect(self.page.get_by_text(f"{table.partition('.')[2]}_catalog").first).to_be_visible()
        self.rest()

    def materialize(self, table: str, part: str, day: date) -> str:
        """Materialises one day of one asset by the button on its page, and returns the id of the run."""
        self._open(_asset(table, part))
        before = self._newest_run_by_hand()
        self._press("Materialize")
        self._choose(f"{day}")
        self._dialog().get_by_role("button", name="Launch").click()
        return _await_other(before, self._newest_run_by_hand, "the run was not launched")

    def lineage_into(self, table: str, asset: str) -> None:
        """Opens the lineage from a table into an asset of another code location."""
        self._open(f"{_asset(table, 'catalog')}?view=lineage")
        for name in (f"{table.partition('.')[2]}_catalog", table, asset):
            expect(self._node(name)).to_be_visible()
        self.rest()

    def backfill(self, table: str, first: date, last: date) -> str:
        """Launches a backfill of some days of all assets of a table and returns its id."""
        self.group(table)
        before = self._newest_backfill()[0]
        self._press("Materialize all")
        self._choose(f"[{first}...{last}]")
        self._dialog().get_by_role("button", name="Launch backfill").click()
        return _await_other(before, lambda: self._newest_backfill()[0], "the backfill was not launched")

    def await_backfill(self, backfill: str, seconds: float) -> None:
        """Waits until a backfill has ended, and opens its page, which must show success."""
        deadline = time.monotonic() + seconds
        while (newest := self._newest_backfill()) != (backfill, "COMPLETED_SUCCESS"):
            assert newest[1] in ("REQUESTED", "COMPLETING"), newest
            assert time.monotonic() < deadline, f"the backfill does not end: {newest}\n{self._server.log()[-4000:]}"
            time.sleep(0.5)
        self._open(f"runs/b/{backfill}")
        expect(self.page.get_by_text(re.compile("Succeeded|Completed")).first).to_be_visible()
        self.rest()

    def partitions_of(self, table: str, part: str) -> None:
        """Opens the days of an asset."""
        self._open(f"{_asset(table, part)}?view=partitions")
        expect(self.page.get_by_text(re.compile(r"Materialized|Failed")).first).to_be_visible()
        self.rest()

    def check(self, table: str, name: str) -> Locator:
        """Opens one check of a whole table, and returns its part of the page."""
        self._open(f"assets/prism/{table}?view=checks&checkDetail={name}")
        expect(self.page.get_by_text("Evaluation result")).to_be_visible()
        self.rest()
        return self.page.locator("body")

    def sensor(self, name: str) -> None:
        """Opens the ticks of a sensor."""
        self._open(f"locations/prism_assets/sensors/{name}")
        expect(self.page.get_by_text(re.compile(r"^\d+ runs? requested$")).first).to_be_visible()
        self.rest()

    def reason_of_newest_skip(self) -> str:
        """Opens the newest tick without a request on the sensor's page, and returns its reason."""
        newest = self.page.get_by_role("button", name="0 runs requested", exact=True).first
        self._open_dialog(newest, self._dialog().get_by_text("Skip reason"))
        return self._dialog().inner_text()

    def asset(self, table: str, part: str) -> None:
        """Opens the page of an asset."""
        self._open(_asset(table, part))
        expect(self.page.get_by_text("Latest materialization")).to_be_visible()
        self.rest()

    def rest(self) -> None:
        """Lets pictures and graphs settle."""
        self.page.wait_for_timeout(_CAME_TO_REST)

    def _open(self, path: str) -> None:
        self.page.goto(self._server.url(path), timeout=PATIENCE)

    def _node(self, name: str) -> Locator:
        """Returns a node of a graph. From afar, nodes are drawn without tooltips."""
        near = self.page.locator(f'[data-tooltip="{name}"]')
        far = self.page.locator("svg foreignObject").filter(has=self.page.get_by_text(name, exact=True))
        return near.or_(far).first

    def _press(self, name: str) -> None:
        """Presses a button and so opens a dialog with a field."""
        button = self.page.get_by_role("button", name=name).first  # its icon has a name too
        expect(button).to_be_enabled()
        self._open_dialog(button, self._dialog().get_by_role("textbox").first)

    def _open_dialog(self, button: Locator, shown: Locator) -> None:
        """Clicks until the dialog shows an element, because a button swallows clicks while it is redrawn."""
        deadline = time.monotonic() + PATIENCE / 1e3
        while not shown.is_visible():
            assert time.monotonic() < deadline, f"nothing opens at {button}"
            with suppress(PlaywrightTimeout):
                if not self._dialog().is_visible():
                    button.click(timeout=_UNTIL_OPEN)
                shown.wait_for(timeout=_UNTIL_OPEN)

    def _choose(self, partitions: str) -> None:
        """Names partitions in the dialog as people write them: `2026-03-01` or `[2026-03-01...2026-03-05]`."""
        self._dialog().get_by_role("textbox").first.fill(partitions)
        self.page.keyboard.press("Enter")
        expect(self._dialog().get_by_text(re.compile(r"^[1-9]\d* partitions?$"))).to_be_visible()

    def _dialog(self) -> Locator:
        return self.page.get_by_role("dialog")

    def _newest_run_by_hand(self) -> str:
        """Returns the newest run launched by neither a sensor nor a backfill."""
        for run in self._server.ask(_RUNS, {})["runsOrError"]["results"]:
            if not {tag["key"] for tag in run["tags"]} & {"dagster/sensor_name", "dagster/backfill"}:
                return str(run["runId"])
        return ""

    def _newest_backfill(self) -> tuple[str, str]:
        results = self._server.ask(_BACKFILL, {})["partitionBackfillsOrError"]["results"]
        return (results[0]["id"], results[0]["status"]) if results else ("", "")


@contextmanager
def browsing(chromium: Path, server: DagsterServer) -> Iterator[Ui]:
    """A fresh window of the system's Chromium."""
    arguments = ["--disable-dev-shm-usage", "--no-proxy-server", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(chromium), args=arguments)
        try:
            yield Ui(browser.new_page(viewport={"width": 1280, "height": 800}), server)
        finally:
            browser.close()


def _await_other(before: str, now: Callable[[], str], otherwise: str) -> str:
    deadline = time.monotonic() + PATIENCE / 1e3
    while time.monotonic() < deadline:
        if (found := now()) != before:
            return found
        time.sleep(0.3)
    raise AssertionError(otherwise)


def _asset(table: str, part: str) -> str:
    schema, name = table.split(".")
    return f"assets/prism/{schema}/{name}_{part}"
