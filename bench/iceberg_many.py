"""IP5: many tables with one object a minute each, published by the real stage as the sensor runs it."""

from __future__ import annotations

import gzip
import json
import statistics
import threading
import time
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path

from rich.console import Console

from bench.iceberg_rows import Row
from bench.platform import TABLE
from prism_assets.stages.apply.run import run_apply
from prism_assets.stages.context import StageContext
from prism_assets.stages.discover.listings import run_discover
from prism_assets.stages.iceberg.pending import find_iceberg_work
from prism_assets.stages.iceberg.run import run_iceberg
from prism_assets.stages.stream.run import run_stream

_MINUTE = 60.0
_TICK = 3.0
_ROWS = 20


@dataclass
class _Waiting:
    """The commit time of each table's first row not yet listed."""

    since: dict[str, float] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, table: str, at: float) -> None:
        with self.lock:
            self.since.setdefault(table, at)

    def take(self, table: str, before: float) -> float | None:
        """Returns None if the table got its first row after `before`, because only the next commit lists it."""
        with self.lock:
            at = self.since.get(table)
            return self.since.pop(table) if at is not None and at <= before else None


def _now() -> datetime:
    return datetime.now(timezone.utc)


def _feed(context: StageContext, names: list[str], minutes: int, waiting: _Waiting, errors: list[str]) -> None:
    """Adds an object to each table in each minute, evenly spaced."""
    started = time.monotonic()
    for number in range(minutes * len(names)):
        time.sleep(max(0.0, started + number * _MINUTE / len(names) - time.monotonic()))
        name = names[number % len(names)]
        now = _now().isoformat()
        rows = [{"event_time": now, "request_id": f"{number}-{row}", "user_id": row} for row in range(_ROWS)]
        body = gzip.compress(b"".join(json.dumps(row).encode() + b"\n" for row in rows))
        context.stores.put("prism-staging", f"{name.partition('.')[2]}/{number:08d}.json.gz", body)
        run_discover(context, now=_now(), names=[name])
        errors += run_stream(context, now=_now(), names=[name]).errors
        waiting.note(name, time.monotonic())


def many_tables(context: StageContext, folder: Path, tables: int, minutes: int, console: Console) -> list[Row]:
    """Feeds from a thread and publishes in this one. Counts the CPU of publishing, not PostgreSQL's or the feeder's."""
    files = folder / "many"
    files.mkdir()
    for number in range(tables):
        (files / f"many{number}.yaml").write_text(TABLE.format(table=f"many{number}") + "iceberg: true\n")
    run_apply(context, files, _now())
    names = [f"bench.many{number}" for number in range(tables)]
    run_iceberg(context, now=_now(), ignore_pace=True)  # creates the tables
    waiting, errors, seconds = _Waiting(), list[str](), list[float]()
    feeder = threading.Thread(target=_feed, args=(context, names, minutes, waiting, errors), daemon=True)
    started, used = time.monotonic(), time.thread_time()
    feeder.start()
    commits = 0
    while feeder.is_alive() or waiting.since:
        tick = time.monotonic()
        for item in find_iceberg_work(context, now=_now()):
            began = time.monotonic()
            report = run_iceberg(context, now=_now(), names=[item.table])
            errors += report.errors
            commits += report.changed
            if report.changed and (since := waiting.take(item.table, began)) is not None:
                seconds.append(time.monotonic() - since)
        time.sleep(max(0.0, tick + _TICK - time.monotonic()))
    elapsed = time.monotonic() - started
    cores = (time.thread_time() - used) / elapsed
    if errors:
        raise ValueError(f"{len(errors)} errors, the first: {errors[0]}")
    last = statistics.quantiles(seconds, n=100)[98]
    console.print(f"IP5 {commits} commits in {elapsed:.0f} s, {cores * elapsed / commits * 1000:.0f} ms of CPU each")
    return [
        Row(
            f"IP5 {tables} tables, {minutes} minutes: 99 % listed after (median {statistics.median(seconds):.0f} s)",
            f"{last:.0f} s", "", "", "<= 60 s", last <= 60,
        ),
        Row("IP5 CPU of the publisher", f"{cores:.2f} cores", "", "", "<= 1", cores <= 1),
    ]  # fmt: skip
