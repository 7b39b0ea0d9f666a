"""Measures how long pages of Dagster's UI take in Chromium."""

from __future__ import annotations

import importlib.util
import itertools
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bench.background import BackgroundThread

if TYPE_CHECKING:
    from playwright.sync_api import Browser

_NODES = ", ".join(f'[data-tooltip$="_{part}"]' for part in ("staging", "live", "merged", "catalog"))
_PATIENCE = 120.0
_PAGES = (
    "assets",
    "asset-groups",
    "runs",
    "locations/prism_assets/sensors/new_objects",
    "overview/timeline",
    "automation",
)
_SECONDS_A_PAGE = 30.0


@dataclass(frozen=True)
class LineageTimes:
    """Seconds of each visit to a lineage page until its nodes were visible, and the nodes of the last visit."""

    seconds: tuple[float, ...]
    nodes: int


def find_chromium() -> Path | None:
    """Returns the system's Chromium. None without Chromium or without playwright."""
    if importlib.util.find_spec("playwright") is None:
        return None
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    return Path(found) if found else None


class Onlooker(BackgroundThread):
    """A person with Dagster's UI open: a thread that visits one page after another. Does nothing without Chromium."""

    def __init__(self, url: Callable[[str], str]) -> None:
        super().__init__()
        self._url = url

    def _run(self) -> None:
        """Skips a page that does not load, because the soak judges the servers."""
        chromium = find_chromium()
        if chromium is None:
            print("nobody looks at the UI: no Chromium is installed", flush=True)
            return
        from playwright.sync_api import Error

        with _browser(chromium) as browser:
            page = browser.new_page(viewport={"width": 1280, "height": 800})
            for path in itertools.cycle(_PAGES):
                with suppress(Error):
                    page.goto(self._url(path), timeout=_PATIENCE * 1e3)
                if self._ended.wait(_SECONDS_A_PAGE):
                    return


@contextmanager
def _browser(chromium: Path) -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    arguments = ["--disable-dev-shm-usage", "--no-proxy-server", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(chromium), args=arguments)
        try:
            yield browser
        finally:
            browser.close()


def lineage_times(chromium: Path, address: str, looks: int) -> LineageTimes:
    """Opens a page in a new window each time, and waits for the first nodes of its graph."""
    seconds, nodes = [], 0
    with _browser(chromium) as browser:
        for _ in range(looks):
            page = browser.new_page(viewport={"width": 1280, "height": 800})
            begun = time.perf_counter()
            page.goto(address, timeout=_PATIENCE * 1e3)
            page.locator(_NODES).first.wait_for(state="visible", timeout=_PATIENCE * 1e3)
            seconds.append(time.perf_counter() - begun)
            nodes = page.locator(_NODES).count()
            page.close()
    return LineageTimes(tuple(seconds), nodes)
