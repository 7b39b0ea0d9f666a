"""A small soak: everything arrives, becomes readable and is counted. Times are not judged here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.stack

_PROJECT = Path(__file__).resolve().parents[2]
_PATIENCE = 900.0


def test_all_rows_of_even_traffic_over_many_tables_are_read_exactly_once(tmp_path: Path, long: bool) -> None:
    if not long:
        pytest.skip("a stack of its own for a benchmark: with --long")
    figures = tmp_path / "soak.json"
    arguments = [
        "--tables",
        "20",
        "--minutes",
        "1",
        "--lines",
        "50",
        "--merge-seconds",
        "30",
        "--p99",
        "inf",
        "--drain-seconds",
        "300",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "bench.soak", *arguments, "--json", str(figures), "--results", str(tmp_path)],
        cwd=_PROJECT,
        capture_output=True,
        text=True,
        timeout=_PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(figures.read_text())
    assert found["dropped"] == found["readable"] == 40
    assert found["faults"] == []
    stages = {run["stage"]: run for run in found["runs"]}
    assert {"live", "catalog"} <= stages.keys()
    assert sum(run["failed"] for run in stages.values()) == 0
    # A run serves many tables: one a table and object would be forty.
    assert stages["live"]["runs"] < 40
    assert {"new_objects", "catalog_work"} <= {tick["sensor"] for tick in found["ticks"]}
    assert {"postgres", "s3", "spark", "daemon", "web server", "code server", "runs"} <= found["usage"].keys()
    assert "| 99 % |" in (tmp_path / "soak.md").read_text()
