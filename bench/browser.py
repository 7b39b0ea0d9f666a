"""How long pages of Dagster's UI take in Chromium."""

from __future__ import annotations

import importlib.util
import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

_NODES = ", ".join(f'[data-tooltip$="_{part}"]' for part in ("staging", "live", "merged", "catalog"))
_PATIENCE = 120.0


@dataclass(frozen=True)
class LineageTimes:
    """Seconds of each look at a lineage page until its nodes were visible, and how many there were in the last."""

    seconds: tuple[float, ...]
    nodes: int


def find_chromium() -> Path | None:
    """The system's Chromium; None without it, or without the package that drives it."""
    if importlib.util.find_spec("playwright") is None:
        return None
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    return Path(found) if found else None


def lineage_times(chromium: Path, address: str, looks: int) -> LineageTimes:
    """Opens a page in a fresh window each time, until the first nodes of its graph are visible."""
    from playwright.sync_api import sync_playwright

    seconds, nodes = [], 0
    arguments = ["--disable-dev-shm-usage", "--no-proxy-server", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(chromium), args=arguments)
        try:
            for _ in range(looks):
                page = browser.new_page(viewport={"width": 1280, "height": 800})
                begun = time.perf_counter()
                page.goto(address, timeout=_PATIENCE * 1e3)
                page.locator(_NODES).first.wait_for(state="visible", timeout=_PATIENCE * 1e3)
                seconds.append(time.perf_counter() - begun)
                nodes = page.locator(_NODES).count()
                page.close()
        finally:
            browser.close()
    return LineageTimes(tuple(seconds), nodes)
