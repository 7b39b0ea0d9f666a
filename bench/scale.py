"""Scale: a lake of hundreds of tables after more than a year, and the cost of its Dagster side.

Times a tick of each sensor, the building of definitions without imports of Dagster and its libraries, a catalog run
without work and one with a new day in each table, the status, and the lineage page of one group in Chromium. Fails if
a figure exceeds its limit.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timezone
from pathlib import Path
from typing import Any

from dagster import (
    DagsterInstance,
    RunStatusSensorDefinition,
    SensorDefinition,
    SensorResult,
    build_sensor_context,
)

from bench.browser import find_chromium, lineage_times
from bench.lake_state import (
    LakeSize,
    analyze,
    end_all_work,
    fill_history,
    fill_lake,
    forget_open_days,
    make_work,
    write_table_files,
)
from bench.platform import bench_stack
from bench.report import Grid, Report, Verdict
from prism_assets.defs.keys import groups_of
from prism_assets.defs.location import load_location
from prism_assets.defs.resources import build_platform
from prism_assets.defs.sensors.build import build_sensors
from prism_assets.platform import build_context
from prism_assets.publishers.glue import GluePublisher
from prism_assets.settings import load_settings
from prism_assets.stages.apply.run import run_apply
from prism_assets.stages.catalog.run import run_catalog
from prism_assets.stages.context import StageContext
from prism_assets.stages.live.holdings import Holdings
from prism_assets.stages.status import read_status
from prism_assets_tests.defs.server import DagsterServer
from prism_assets_tests.publishers.recorder import Recorder
from prism_assets_tests.statements import counted_statements

TICK_SECONDS = 2.0
CATALOG_SECONDS = 1.0
BUILD_SECONDS = 3.0
_IDLE = "catalog run without work"
_FIRST_DAYS = "catalog run with a new day in each table"
_DAY_CALLS = 2.0
_BESIDE_WORKER = "tick of new_objects, all tables held by a worker"
_ROUNDS = 5
_PUBLISH_ROUNDS = 3
_LOOKS = 3
_PROJECT = Path(__file__).resolve().parents[1]
_BUILD = """
import json, time
import dagster, dagster_aws.s3, dagster_pyspark, prism_assets.platform, prism_assets.stages.apply.run
import prism_assets.defs.assets.build, prism_assets.defs.sensors.build
begun = time.perf_counter()
from prism_assets.definitions import defs
keys = defs.resolve_all_asset_keys()
print(json.dumps([time.perf_counter() - begun, len(list(keys))]))
"""


@dataclass(frozen=True)
class Figure:
    """One measurement in seconds, its limit, and its last result."""

    name: str
    seconds: tuple[float, ...]
    limit: float | None
    said: str = ""

    @property
    def median(self) -> float:
        """The figure to quote."""
        return statistics.median(self.seconds)

    @property
    def is_met(self) -> bool:
        """Whether the median is within the limit."""
        return self.limit is None or self.median <= self.limit


def measure(folder: Path, size: LakeSize, chromium: Path | None) -> list[Figure]:
    """Creates the state on a stack whose settings are in the environment, and times everything."""
    write_table_files(folder / "tables", size)
    os.environ["PRISM_TABLES_DIR"] = str(folder / "tables")
    home = _home(folder)
    context = build_context(load_settings())
    try:
        run_apply(context, folder / "tables", datetime.now(timezone.utc))
        today = datetime.now(timezone.utc).date()
        _run_and_print("state", lambda: f"{fill_lake(context, size, today):,} partitions")
        analyze(context)
        with DagsterInstance.from_config(str(home)) as instance:
            _run_and_print(
                "history", lambda: "{:,} runs, {:,} materialisations".format(*fill_history(instance, size, today))
            )
            figures = [*_ticks(instance, "at rest"), _build()]
            make_work(context)
            figures += _ticks(instance, "work for all")
            figures.append(_tick_beside_worker(context, instance))
        end_all_work(context)
        figures += [_idle_catalog(context), _status(context), _first_days(context, today)]
    finally:
        context.database.dispose()
    return [*figures, *(_lineage(home, size, chromium) if chromium else ())]


def _home(folder: Path) -> Path:
    """Returns a Dagster home with the project's settings. This process uses its instance, too."""
    home = folder / "dagster"
    home.mkdir()
    (home / "dagster.yaml").write_text((_PROJECT / "dagster.yaml").read_text())
    os.environ["DAGSTER_HOME"] = str(home)
    return home


def _run_and_print(what: str, work: Callable[[], str]) -> None:
    begun = time.perf_counter()
    print(f"{what}: {work()} made in {time.perf_counter() - begun:.1f} s", flush=True)


def _ticks(instance: DagsterInstance, when: str) -> list[Figure]:
    """Times ticks of all sensors over loaded definitions. Each tick reads PostgreSQL, Dagster's runs and S3."""
    found = []
    for sensor in build_sensors(load_location()):
        if not isinstance(sensor, RunStatusSensorDefinition):
            rounds = [_tick(instance, sensor) for _ in range(_ROUNDS)]
            name, result = f"tick of {sensor.name}, {when}", rounds[-1][1]
            found.append(Figure(name, tuple(seconds for seconds, _ in rounds), TICK_SECONDS, result))
    return found


def _tick_beside_worker(context: StageContext, instance: DagsterInstance) -> Figure:
    """Times `new_objects` while a worker holds all tables. The limit is on the runs that the sensor requests."""
    worker = Holdings(replace(context, worker="bench:1"), None)
    (sensor,) = (item for item in build_sensors(load_location()) if item.name == "new_objects")
    rounds = []
    for _ in range(_ROUNDS):
        worker.beat()
        rounds.append(_tick(instance, sensor))
    return Figure(_BESIDE_WORKER, tuple(seconds for seconds, _ in rounds), TICK_SECONDS, rounds[-1][1])


def _tick(instance: DagsterInstance, sensor: SensorDefinition) -> tuple[float, str]:
    begun = time.perf_counter()
    with build_sensor_context(instance=instance, resources=build_platform()) as sensor_context:
        result = sensor(sensor_context)
    seconds = time.perf_counter() - begun
    assert isinstance(result, SensorResult)
    tables = sum(len(request.asset_selection or ()) for request in result.run_requests or ())
    skip_message = result.skip_reason.skip_message if result.skip_reason else None
    return seconds, skip_message or f"{len(result.run_requests or ())} runs requested for {tables} tables"


def _recorded(context: StageContext) -> Recorder:
    """Notes the calls of Glue from now on."""
    publisher = context.publisher
    assert isinstance(publisher, GluePublisher)
    client: Any = publisher.catalog._client
    recorder: Any = Recorder(client._inner if isinstance(client, Recorder) else client)
    publisher.catalog._made = recorder
    return recorder  # type: ignore[no-any-return]


def _idle_catalog(context: StageContext) -> Figure:
    """Times catalog runs without work, and counts their statements and calls of Glue."""
    times = []
    for _ in range(_ROUNDS):
        glue = _recorded(context)
        begun = time.perf_counter()
        with counted_statements() as statements:
            report = run_catalog(context, now=datetime.now(timezone.utc))
        times.append(time.perf_counter() - begun)
        assert not report.changed
        assert not report.errors
    asked = sum(not statement.startswith("BEGIN") for statement in statements)
    return Figure(_IDLE, tuple(times), CATALOG_SECONDS, f"{asked} statements, {len(glue.calls)} calls")


def _first_days(context: StageContext, today: date) -> Figure:
    """Times a catalog run that publishes the first day of every table, and counts its statements and calls of Glue.

    Each round first removes the days from Glue.
    """
    tables = context.choose_tables(None)
    times = []
    for _ in range(_PUBLISH_ROUNDS):
        for table in tables:
            context.publisher.withdraw(table, [today])
        forget_open_days(context)
        glue = _recorded(context)
        begun = time.perf_counter()
        with counted_statements() as statements:
            report = run_catalog(context, now=datetime.now(timezone.utc))
        times.append(time.perf_counter() - begun)
        assert not report.errors
        assert [len(item.published) for item in report.tables] == [1] * len(tables)
    asked = sum(not statement.startswith("BEGIN") for statement in statements)
    of_days = sum("partition" in call for call in glue.calls)
    said = f"{of_days / len(tables):.2f} calls and {asked / len(tables):.0f} statements a day, "
    return Figure(_FIRST_DAYS, tuple(times), None, f"{said}{len(glue.calls) - of_days} lists of tables")


def _status(context: StageContext) -> Figure:
    """Times `prism status` without its start, and counts its statements."""
    times = []
    for _ in range(_ROUNDS):
        begun = time.perf_counter()
        with counted_statements() as statements:
            read_status(context, now=datetime.now(timezone.utc))
        times.append(time.perf_counter() - begun)
    return Figure("status of all tables", tuple(times), None, f"{len(statements)} statements")


def _build() -> Figure:
    """Times the definitions in fresh processes, from the end of the imports."""
    rounds = []
    for _ in range(_ROUNDS):
        done = subprocess.run([sys.executable, "-c", _BUILD], capture_output=True, text=True, check=True)
        rounds.append(json.loads(done.stdout))
    seconds = tuple(float(seconds) for seconds, _ in rounds)
    return Figure("definitions beyond the imports", seconds, BUILD_SECONDS, f"{rounds[-1][1]} assets")


def _lineage(home: Path, size: LakeSize, chromium: Path) -> list[Figure]:
    """Times the lineage page of the first group as a person opens it, without the daemon."""
    table = size.names()[0]
    group = groups_of([table])[table]
    with DagsterServer(home, {}, ("dagster_webserver",)) as server:
        page = server.url(f"locations/prism_assets/asset-groups/{group}")
        times = lineage_times(chromium, page, _LOOKS)
    note = f"{times.nodes} nodes visible; the first look also starts everything up"
    return [Figure("lineage page of one group", times.seconds, None, note)]


def _publish(figures: Sequence[Figure], told: str) -> None:
    heads = ("what", "median s", "longest s", "limit s", "it said")
    rows = tuple(
        (
            figure.name,
            f"{figure.median:.2f}",
            f"{max(figure.seconds):.2f}",
            "" if figure.limit is None else f"{figure.limit:g}",
            figure.said,
        )
        for figure in figures
    )
    Report(
        entry="scale",
        title="Scale: 300 tables and 400 days",
        verdicts=tuple(_verdicts(figures)),
        grids=(Grid("Figures", heads, rows),),
        notes=(told,),
        figures={f"{figure.name}: s": round(figure.median, 3) for figure in figures},
    ).publish()


def _verdicts(figures: Sequence[Figure]) -> Iterator[Verdict]:
    ticks = [figure.median for figure in figures if figure.name.startswith("tick")]
    yield Verdict("P14", "slowest tick of all sensors, median", max(ticks), TICK_SECONDS, "s", at_most=True)
    for figure in figures:
        if figure.name == _BESIDE_WORKER:
            requested = figure.said.split()[0] if "requested" in figure.said else "0"
            yield Verdict("P14", "live runs requested beside a worker", float(requested), 0, "", at_most=True)
        if figure.name == _IDLE:
            yield Verdict("P9", f"{_IDLE}, median", figure.median, CATALOG_SECONDS, "s", at_most=True)
            yield Verdict("P9", f"{_IDLE}, statements", float(figure.said.split()[0]), 10, "", at_most=True)
        if figure.name == _FIRST_DAYS:
            yield Verdict("P9", f"{_FIRST_DAYS}, calls", float(figure.said.split()[0]), _DAY_CALLS, "", at_most=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench scale", description=__doc__)
    parser.add_argument("--tables", type=int, default=300)
    parser.add_argument("--schemas", type=int, default=10)
    parser.add_argument("--days", type=int, default=400)
    parser.add_argument("--objects", type=int, default=3, help="small objects of each partition")
    parser.add_argument("--runs", type=int, default=1_000, help="finished runs that Dagster knows")
    parser.add_argument("--shown-days", type=int, default=60, help="days with materialisations in Dagster")
    parser.add_argument("--no-browser", action="store_true", help="leave the lineage page out")
    options = parser.parse_args()
    size = LakeSize(**{name: value for name, value in vars(options).items() if name != "no_browser"})
    chromium = None if options.no_browser else find_chromium()
    if chromium is None:
        print("no Chromium or no playwright, or not wanted: the lineage page is not measured", flush=True)
    with bench_stack({"postgres", "s3", "aws"}) as (_, folder):
        figures = measure(folder, size, chromium)
    summary = (
        f"{size.tables} tables in {size.schemas} schemas, {size.days} days each, {size.objects} small objects a day; "
        f"{size.runs} runs, materialisations of {size.shown_days} days."
    )
    _publish(figures, summary)
    return 0 if all(figure.is_met for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
