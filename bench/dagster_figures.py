"""Dagster's own records of runs and ticks: counts, waits, overhead."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prism_assets_tests.defs.server import DagsterServer

SENSORS = (
    "new_objects",
    "catalog_work",
    "delayed_data",
    "merges_due",
    "dead_workers",
    "iceberg_work",
    "table_checks",
    "table_health",
    "runless_materializations",
    "run_failures",
)
_PAGE = 100
_RUNS = """
query($cursor: String, $limit: Int!) { runsOrError(cursor: $cursor, limit: $limit) { ... on Runs { results {
  runId status assetSelection { path } tags { key value } stepStats { startTime endTime }
  stats { ... on RunStatsSnapshot { enqueuedTime launchTime startTime endTime } } } } } }
"""
_TICKS = """
query($sensor: String!) { sensorOrError(sensorSelector: {repositoryLocationName: "prism_assets",
  repositoryName: "__repository__", sensorName: $sensor}) { ... on Sensor { sensorState { ticks(limit: 2000) {
  status timestamp endTimestamp } } } } }
"""


@dataclass(frozen=True)
class RunFigures:
    """Runs of one stage. All seconds are medians per run.

    `queued` is the time until launch, `starting` until the process works, `step` in our code, and `around` between the
    run's start and end outside the step.
    """

    stage: str
    runs: int
    failed: int
    tables: float
    queued: float
    starting: float
    step: float
    around: float

    @property
    def overhead(self) -> float:
        """Seconds of a run outside the step: queueing, starting, and Dagster's own work."""
        return self.queued + self.starting + self.around


@dataclass(frozen=True)
class TickFigures:
    """Ticks of one sensor. `pause` is the median time between the starts of two ticks."""

    sensor: str
    ticks: int
    failed: int
    median: float
    longest: float
    pause: float


def run_figures(server: DagsterServer) -> list[RunFigures]:
    """Returns figures of all finished runs by stage."""
    by_stage: dict[str, list[Mapping[str, Any]]] = {}
    for run in _all_runs(server):
        if run["status"] in ("SUCCESS", "FAILURE"):
            tags = {tag["key"]: tag["value"] for tag in run["tags"]}
            by_stage.setdefault(tags.get("prism/stage", "by hand"), []).append(run)
    return [_figures(stage, runs) for stage, runs in sorted(by_stage.items())]


def tick_figures(server: DagsterServer) -> list[TickFigures]:
    """Returns figures of finished ticks of our sensors that evaluate work."""
    return [figures for sensor in SENSORS if (figures := _ticks(server, sensor))]


def _all_runs(server: DagsterServer) -> Iterable[Mapping[str, Any]]:
    cursor: str | None = None
    while page := server.ask(_RUNS, {"cursor": cursor, "limit": _PAGE})["runsOrError"]["results"]:
        yield from page
        cursor = page[-1]["runId"]


def _figures(stage: str, runs: Sequence[Mapping[str, Any]]) -> RunFigures:
    steps = [sum(_seconds(step, "startTime", "endTime") for step in run["stepStats"]) for run in runs]
    whole = [_seconds(run["stats"], "startTime", "endTime") for run in runs]
    return RunFigures(
        stage=stage,
        runs=len(runs),
        failed=sum(run["status"] == "FAILURE" for run in runs),
        tables=statistics.median(len(run["assetSelection"] or ()) for run in runs),
        queued=statistics.median(_seconds(run["stats"], "enqueuedTime", "launchTime") for run in runs),
        starting=statistics.median(_seconds(run["stats"], "launchTime", "startTime") for run in runs),
        step=statistics.median(steps),
        around=statistics.median(all_of - step for all_of, step in zip(whole, steps, strict=True)),
    )


def _seconds(times: Mapping[str, Any], begin: str, end: str) -> float:
    return (times[end] - times[begin]) if times.get(begin) and times.get(end) else 0.0


def _ticks(server: DagsterServer, sensor: str) -> TickFigures | None:
    state = server.ask(_TICKS, {"sensor": sensor})["sensorOrError"].get("sensorState")
    ticks = [tick for tick in (state or {"ticks": []})["ticks"] if tick["endTimestamp"]]
    if not ticks:
        return None
    begins = sorted(tick["timestamp"] for tick in ticks)
    lengths = [tick["endTimestamp"] - tick["timestamp"] for tick in ticks]
    return TickFigures(
        sensor=sensor,
        ticks=len(ticks),
        failed=sum(tick["status"] == "FAILURE" for tick in ticks),
        median=statistics.median(lengths),
        longest=max(lengths),
        pause=statistics.median([after - before for before, after in itertools.pairwise(begins)] or [0.0]),
    )
