"""A real Prometheus scrapes the exporter: alerts fire for a broken table, and clear once it is mended."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from prism_assets.cli.health import HealthServer
from prism_assets.stages.exporter.exporter import Exporter
from prism_assets.stages.stream.unread import retry_object
from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.defs.server import free_port
from prism_assets_tests.metrics.test_files import RULES
from prism_assets_tests.stages.engines import rest_is_over
from prism_assets_tests.world import World

pytestmark = pytest.mark.skipif(shutil.which("prometheus") is None, reason="Debian's package prometheus")
NOON = "2026-03-01T12:00"
BROKEN = {
    ("PrismCheckFailed", "log.events"),
    ("PrismWaitsForPerson", "log.events"),
    ("PrismObjectsGivenUp", "log.events"),
}
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Prometheus:
    """A Prometheus that scrapes one address each second, with our rules without their delays."""

    def __init__(self, folder: Path, target: int) -> None:
        rules = yaml.safe_load(RULES.read_text())
        for rule in rules["groups"][0]["rules"]:
            rule.pop("for", None)
        (folder / "rules.yaml").write_text(yaml.safe_dump(rules))
        scraped = {"job_name": "prism-exporter", "static_configs": [{"targets": [f"127.0.0.1:{target}"]}]}
        every = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
        config = {"global": every, "rule_files": ["rules.yaml"], "scrape_configs": [scraped]}
        (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
        self.port = free_port()
        self.process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={folder / 'prometheus.yaml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{self.port}",
                "--log.level=error",
            ]
        )

    def alerts(self) -> set[tuple[str, str]]:
        """The alerts that fire, by name and table."""
        found = self._ask("/api/v1/alerts")["alerts"]
        return {
            (item["labels"]["alertname"], item["labels"].get("table", ""))
            for item in found
            if item["state"] == "firing"
        }

    def value(self, query: str) -> float | None:
        """The value of a query with one answer."""
        found = self._ask(f"/api/v1/query?query={urllib.parse.quote(query)}")["result"]
        return float(found[0]["value"][1]) if found else None

    def _ask(self, path: str) -> Any:
        with _OPENER.open(f"http://127.0.0.1:{self.port}{path}", timeout=30) as answer:
            return json.load(answer)["data"]

    def until(self, is_so: Any) -> None:
        """Waits for an answer, also for the start."""
        end = time.monotonic() + 180
        while True:
            assert self.process.poll() is None, "Prometheus has ended"
            try:
                if is_so():
                    return
            except (urllib.error.URLError, ConnectionError):
                pass
            assert time.monotonic() < end, f"it never happened; these fire: {self.alerts()}"
            time.sleep(0.2)


@pytest.fixture
def exporter(world: World) -> Exporter:
    return Exporter(world.context, clock=lambda: utc(NOON))


@pytest.fixture
def prometheus(exporter: Exporter, tmp_path: Path) -> Iterator[Prometheus]:
    folder = tmp_path / "prometheus"
    folder.mkdir()
    with HealthServer(("127.0.0.1", 0), exporter) as server:
        made = Prometheus(folder, server.port)
        yield made
        made.process.terminate()
        made.process.wait(60)


def look(exporter: Exporter) -> None:
    exporter.look("tables")
    exporter.look("attention")
    assert exporter.why_not_ready == ""


def test_alerts_fire_for_a_broken_table_and_clear_once_it_is_mended(
    world: World, exporter: Exporter, prometheus: Prometheus
) -> None:
    world.apply(a_table("log.events"), a_table("log.healthy"))
    look(exporter)
    prometheus.until(lambda: prometheus.value('prism_table_pending_objects{table="log.healthy"}') == 0)
    assert not prometheus.alerts() & BROKEN
    key = world.drop(some_rows(3, utc(NOON)))
    world.discover(NOON)
    path = world.root / "buckets" / "staging" / key
    content = path.read_bytes()
    path.unlink()
    for _ in range(world.settings.max_attempts):
        rest_is_over(world)
        world.stream(NOON)
    look(exporter)
    prometheus.until(lambda: prometheus.alerts() >= BROKEN)
    assert not {item for item in prometheus.alerts() if item[1] == "log.healthy"}
    path.write_bytes(content)
    retry_object(world.context, f"s3://staging/{key}")
    world.stream(NOON)
    look(exporter)
    prometheus.until(lambda: not prometheus.alerts() & BROKEN)
