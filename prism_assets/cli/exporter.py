"""`prism exporter`: metrics of the whole lake, from PostgreSQL."""

from __future__ import annotations

import signal
import threading
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime, timezone
from typing import Annotated

import typer

from prism_assets.cli.service_lines import open_log
from prism_assets.domain.metrics import Source
from prism_assets.settings import load_settings

_STATEMENT_SECONDS = 60.0


def exporter(
    listen: Annotated[
        str, typer.Option("--listen", help="Serve /live, /ready and /metrics at this address.")
    ] = "127.0.0.1:8091",
) -> None:
    """Serves metrics of all tables to Prometheus, until SIGTERM: lag, rows, merges, findings, failed checks.

    Reads PostgreSQL, and the table files for their limits. One exporter is enough for a lake.
    """
    from prism_assets.cli.health import HealthServer, read_address
    from prism_assets.metrics.otlp import pushed
    from prism_assets.platform import build_context
    from prism_assets.stages.exporter.exporter import Exporter

    address, settings = read_address(listen), load_settings()
    say = open_log("exporter")
    context = build_context(settings)
    limited = replace(context, database=context.database.with_deadline(lambda: _STATEMENT_SECONDS))
    watched = Exporter(limited, clock=lambda: datetime.now(timezone.utc), tell=say)
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: stopping.set())
    with ExitStack() as stack:
        stack.callback(context.database.dispose)
        server = stack.enter_context(HealthServer(address, watched))
        stack.enter_context(pushed(Source.EXPORTER, watched.samples))
        say(f"serves http://{address[0]}:{server.port}/metrics")
        watched.run(stopping)
    say("ended")
