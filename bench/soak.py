"""Soak: objects arrive at an even rate for many tables while the whole system runs: local stack, daemon, web server.

Measures the time of each object from its arrival in the staging bucket until its rows are readable through the catalog,
the costs of Dagster's runs and ticks, and the resources of each group of processes. Every ten seconds it counts
PostgreSQL sessions, connections, handles, threads and memory of each long-lived process, while a browser visits the UI.
Fails if the 99th percentile exceeds the limit, if a row is lost or doubled, or if a process keeps growing. Stops by
itself: after the last arrival, the time for everything to become readable is limited.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import psutil

from bench.browser import Onlooker
from bench.dagster_figures import run_figures, tick_figures
from bench.holdings import HoldingsMeter
from bench.live_worker import Notifier, WorkerProcess, notified, until_held
from bench.platform import bench_stack
from bench.readable import Watcher, unread
from bench.report import RESULTS
from bench.soak_report import Limits, SoakResult, publish
from bench.traffic import SCHEMA, Traffic, add_options, drop, object_key, write_tables
from bench.usage import Groups, UsageMeter, whole_system
from prism_assets.domain.errors import PrismError
from prism_assets.platform import build_context
from prism_assets.reading.lake_reader import LakeReader
from prism_assets.settings import load_settings
from prism_assets.stages.context import StageContext
from prism_assets_tests.defs.server import DagsterServer
from prism_local.stack import LocalStack

_START_SECONDS = 300.0
_LOOK = 2.0


@dataclass(frozen=True)
class WorkerOptions:
    """Whether a live worker converts the objects, told by messages, and how often it is killed (0 for never)."""

    worker: bool = False
    kill_seconds: float = 0.0


def soak(
    stack: LocalStack, folder: Path, traffic: Traffic, live: WorkerOptions, *, merge_seconds: int, drain_seconds: float
) -> SoakResult:
    """Runs Dagster over a stack whose settings are in the environment, lets the objects arrive, and watches."""
    write_tables(folder / "tables", traffic, merge_seconds)
    os.environ["PRISM_TABLES_DIR"] = str(folder / "tables")
    home = folder / "dagster"
    home.mkdir()
    with ExitStack() as held:
        notifier = held.enter_context(notified()) if live.worker else None
        context = build_context(load_settings())
        held.callback(context.database.dispose)
        server = held.enter_context(DagsterServer(home, {}))
        _until_defined(context, traffic)
        log = folder / "worker.log"
        worker = held.enter_context(WorkerProcess(log, live.kill_seconds)) if live.worker else None
        if worker is not None:
            until_held(context, traffic.tables)
        result = _measure(stack, context, server, traffic, drain_seconds, worker, notifier)
    if worker is not None:
        print(f"the worker was killed {worker.kills} times; its log ends with:\n{log.read_text()[-2_000:]}")
    return result


def _until_defined(context: StageContext, traffic: Traffic) -> None:
    """Waits until the catalog shows all tables, so that the first set-up is not measured."""
    reader = LakeReader(context.settings)
    left = sorted(traffic.expected())
    deadline = time.monotonic() + _START_SECONDS
    while left and time.monotonic() < deadline:
        try:
            reader.table(f"{SCHEMA}.{left[0]}")
            left = left[1:]
        except PrismError:
            time.sleep(1)
    if left:
        raise TimeoutError(f"{len(left)} tables are not in the catalog after {_START_SECONDS:.0f} s; {left[0]} first")


def _measure(
    stack: LocalStack,
    context: StageContext,
    server: DagsterServer,
    traffic: Traffic,
    drain_seconds: float,
    worker: WorkerProcess | None,
    notifier: Notifier | None,
) -> SoakResult:
    begun = time.monotonic()
    others = whole_system(stack, server.family)

    def processes() -> Groups:
        return {**others(), **({"worker": worker.family()} if worker else {})}

    held = HoldingsMeter(processes, int(os.environ["PRISM_DAGSTER_PG_PORT"]))
    with UsageMeter(_with_own(processes)) as meter, held, Onlooker(server.url), Watcher(context) as watcher:
        arrived = _drop_all(context, traffic, notifier)
        readable = _drained(watcher.readable, len(arrived), drain_seconds)
        committed = watcher.committed()
        listed = _drained(watcher.listed, len(arrived), drain_seconds) if traffic.commit_seconds else {}
        seconds = time.monotonic() - begun
    faults = [*watcher.missing, *unread(context, traffic, arrived.keys())]
    return SoakResult(
        traffic=traffic,
        dropped=len(arrived),
        readable=len(readable),
        latencies=tuple(sorted(readable[number] - arrived[number] for number in readable)),
        ducklake_latencies=tuple(sorted(committed[number] - arrived[number] for number in committed)),
        iceberg_latencies=tuple(sorted(listed[number] - arrived[number] for number in listed)),
        faults=tuple(faults),
        seconds=seconds,
        runs=tuple(run_figures(server)),
        ticks=tuple(tick_figures(server)),
        usage=meter.usage(),
        holdings=held.holdings(),
        most_sessions=held.most_sessions,
    )


def _with_own(groups: Callable[[], Groups]) -> Callable[[], Groups]:
    """Adds this process, because it makes the traffic and watches."""
    return lambda: {**groups(), "traffic and watching": [psutil.Process()]}


def _drop_all(context: StageContext, traffic: Traffic, notifier: Notifier | None) -> dict[int, float]:
    """Lets all objects arrive, and reports progress about once a minute."""
    arrived: dict[int, float] = {}
    last_report = time.monotonic()
    for number, when in drop(context.stores, traffic):
        arrived[number] = when
        if notifier is not None:
            notifier.tell(object_key(traffic, number), traffic.lines)
        if time.monotonic() - last_report >= 60:
            last_report = time.monotonic()
            print(f"{len(arrived)} of {traffic.objects} objects have arrived", flush=True)
    return arrived


def _drained(look: Callable[[], dict[int, float]], objects: int, seconds: float) -> dict[int, float]:
    """Returns the readable objects once all are, or after `seconds`."""
    deadline = time.monotonic() + seconds
    while len(readable := look()) < objects and time.monotonic() < deadline:
        time.sleep(_LOOK)
    return readable


def main(entry: str = "soak") -> int:
    parser = argparse.ArgumentParser(prog=f"scripts/bench {entry}", description=__doc__)
    add_options(parser, minutes=30.0)
    parser.add_argument("--merge-seconds", type=int, default=300, help="merge interval of the tables")
    parser.add_argument("--p50", type=float, default=math.inf, help="seconds that half of the objects may take")
    parser.add_argument("--p99", type=float, default=60.0, help="seconds that the 99th percentile may take")
    parser.add_argument("--iceberg", type=int, default=0, metavar="SECONDS", help="also Iceberg, a commit so often")
    parser.add_argument("--iceberg-p99", type=float, default=120.0, help="seconds that its 99th percentile may take")
    parser.add_argument("--worker", action="store_true", help="a live worker converts, told by messages of a queue")
    parser.add_argument("--kill-seconds", type=float, default=0.0, help="kill -9 of the worker so often")
    parser.add_argument("--json", type=Path, help="a file for all figures")
    parser.add_argument("--results", type=Path, default=RESULTS, help="the folder of the report")
    options = parser.parse_args()
    traffic = Traffic(options.tables, options.rate, options.minutes, options.lines, options.iceberg)
    with bench_stack() as (stack, folder):
        result = soak(
            stack,
            folder,
            traffic,
            WorkerOptions(options.worker, options.kill_seconds),
            merge_seconds=options.merge_seconds,
            drain_seconds=options.drain_seconds,
        )
    if options.json:
        options.json.write_text(json.dumps(result.as_dict(), indent=2) + "\n")
    killed = f", killed every {options.kill_seconds:g} s" if options.kill_seconds else ""
    told = f"A live worker converts{killed}." if options.worker else ""
    limits = Limits(
        p50=options.p50,
        p99=options.p99,
        iceberg_p99=options.iceberg_p99,
        target="P10" if options.worker and not options.kill_seconds else "",
        entry=entry,
        notes=(told,) if told else (),
    )
    return 0 if publish(result, limits, options.results) and not result.growth else 1


if __name__ == "__main__":
    sys.exit(main())
