"""`prism worker`: the live worker as a process, with its signals and its health server."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Annotated

import typer

from prism_assets.cli.options import Tables
from prism_assets.cli.service_lines import open_log
from prism_assets.cli.table_names import takes_tables
from prism_assets.domain.errors import NoLake, OldSchema
from prism_assets.domain.metrics import Source
from prism_assets.json_logs import log_fields
from prism_assets.settings import load_settings

if TYPE_CHECKING:
    from prism_assets.domain.tables.definition import TableDefinition
    from prism_assets.stages.context import StageContext
    from prism_assets.stages.live.vitals import Vitals

_LAKE_SECONDS = 2.0
"""Seconds between two looks for a lake."""


@takes_tables
def worker(
    table: Tables = None,
    listen: Annotated[
        str | None,
        typer.Option("--listen", help="Serve /live, /ready and /metrics at this address, such as 127.0.0.1:8090."),
    ] = None,
    list_seconds: Annotated[
        float, typer.Option("--list-seconds", min=1, help="Seconds between listings of a stream, without queues.")
    ] = 10.0,
) -> None:
    """Makes rows of new objects readable within seconds, until SIGTERM.

    Several workers share the tables. Sensors leave these tables alone, and take over within seconds when a worker dies.
    Merges, closes and Iceberg stay with Dagster or `prism run`. Before the first `prism table apply` the worker waits.
    """
    from prism_assets.cli.health import HealthServer, read_address
    from prism_assets.cli.watched_worker import WatchedWorker
    from prism_assets.metrics.otlp import pushed
    from prism_assets.platform import build_live_context
    from prism_assets.stages.live.worker import STOP_SECONDS, LiveOptions, LiveWorker, WorkerStopped

    address = read_address(listen) if listen else None
    settings = load_settings()
    say = open_log("worker")
    context, engines = build_live_context(settings, progress=lambda _message: None)
    stopping = threading.Event()
    live = LiveWorker(
        context,
        LiveOptions(names=table, list_seconds=list_seconds, spark_settings=settings),
        clock=lambda: datetime.now(timezone.utc),
        engines=engines,
        tell=say,
    )

    with ExitStack() as stack:
        stack.enter_context(log_fields(worker=context.worker))
        stack.callback(context.database.dispose)
        stack.callback(engines.close)
        watched = WatchedWorker(live.vitals, engines, context.database)
        if address:
            stack.enter_context(HealthServer(address, watched))
        stack.enter_context(pushed(Source.WORKER, watched.samples))
        try:
            with _stopped_by_signals(stopping):
                if _await_lake(context, stopping, live.vitals, say):
                    _settle(context.choose_logs(table))
                    live.run(stopping)
        except WorkerStopped:
            say(f"a running batch was released {STOP_SECONDS} s after the signal: the next worker converts its objects")
    say("ended")


def _await_lake(context: StageContext, stopping: threading.Event, vitals: Vitals, say: Callable[[str], None]) -> bool:
    """Waits for the first `prism table apply` of this version. Returns False if `stopping` comes first."""
    while not stopping.is_set():
        vitals.note_sign()
        try:
            context.check_lake()
        except (NoLake, OldSchema) as error:
            if vitals.waits_for != str(error):
                say(f"{error}; waiting")
            vitals.waits_for = str(error)
            stopping.wait(_LAKE_SECONDS)
        else:
            vitals.waits_for = ""
            return True
    return False


def _settle(tables: Iterable[TableDefinition]) -> None:
    """Tunes memory and garbage collection for the loop, after the modules for these tables are loaded."""
    from prism_assets.engine.allocator import keep_memory
    from prism_assets.engine.collector import collect_seldom, settle

    if any(table.reads_topics for table in tables):
        import prism_assets.kernels.messages.spool_file  # noqa: F401

        keep_memory()
    collect_seldom()
    settle()


@contextmanager
def _stopped_by_signals(stopping: threading.Event) -> Iterator[None]:
    """Sets `stopping` at SIGTERM or SIGINT, and raises WorkerStopped if the loop still runs after `STOP_SECONDS`."""
    from prism_assets.stages.live.worker import STOP_SECONDS, WorkerStopped

    def stop(_number: int, _frame: object) -> None:
        if not stopping.is_set():
            # The alarm comes first: it also ends a handler that waits for a lock which the interrupted `wait` holds.
            signal.alarm(STOP_SECONDS)
        stopping.set()

    def stop_now(_number: int, _frame: object) -> None:
        raise WorkerStopped

    signal.signal(signal.SIGALRM, stop_now)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    try:
        yield
    finally:
        signal.alarm(0)
