"""Seconds from an object to its row in a live table: alone, and beside `prism history` of another table.

A live worker converts an object every half second. Then a process of `prism history` brings in old objects of another
table on the same machine, until all are in.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date, datetime, timedelta, timezone
from pathlib import Path

from bench.live_worker import until_held
from bench.platform import TABLE, bench_stack, log_lines
from bench.report import Grid, Report, Verdict
from prism_assets.platform import build_context
from prism_assets.settings import load_settings
from prism_assets.stages.apply.run import run_apply
from prism_assets.stages.context import StageContext

_PRISM = (sys.executable, "-m", "prism_assets.cli")
_BUCKET = "prism-staging"
_EVERY_SECONDS = 0.5
_FIRST = date(2026, 1, 1)
_PER_DAY = 1_000
_LINES = 20
_SAMPLE = log_lines(_LINES, 1).splitlines()
_MOST = 2.0
_SETTLE_SECONDS = 120.0


def _apply(context: StageContext, folder: Path) -> None:
    tables, today = folder / "tables", datetime.now(timezone.utc).date()
    tables.mkdir()
    for name in ("live", "old"):
        text = TABLE.format(table=name).replace("accept: {from: arrival}\n", "")
        (tables / f"{name}.yaml").write_text(text.replace(f'/{name}/"', f'/{name}/", since: "{today}"'))
    run_apply(context, tables, datetime.now(timezone.utc))


def _body(day: date) -> bytes:
    """Returns an object with rows of one day."""
    lines = [json.dumps({**json.loads(line), "event_time": f"{day}T00:00:01Z"}) for line in _SAMPLE]
    return gzip.compress("\n".join([*lines, ""]).encode(), 6, mtime=0)


def _put_old(context: StageContext, objects: int) -> None:
    days = [_FIRST + timedelta(days=number) for number in range(objects // _PER_DAY + 1)]
    bodies = {day: _body(day) for day in days}

    def put(number: int) -> None:
        day = days[number // _PER_DAY]
        context.stores.put(_BUCKET, f"old/dt={day}/{number:06}.gz", bodies[day])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(put, range(objects)))


def _live(context: StageContext, phase: str, goes_on: Callable[[], bool]) -> list[float]:
    """Puts objects while the phase goes on. Returns the seconds from each put to the commit of its rows."""
    body, sent = _body(datetime.now(timezone.utc).date()), dict[str, float]()
    while goes_on():
        key = f"live/{phase}/{len(sent):06}.gz"
        sent[key] = time.time()
        context.stores.put(_BUCKET, key, body)
        time.sleep(_EVERY_SECONDS)
    deadline = time.monotonic() + _SETTLE_SECONDS
    done = dict[str, float]()
    while len(done) < len(sent) and time.monotonic() < deadline:
        time.sleep(1)
        with context.database.begin() as connection:
            rows = connection.exec_driver_sql(
                "SELECT object_key, extract(epoch FROM finish_time) AS finished FROM prism_staging_objects "
                f"WHERE state = 'done' AND starts_with(object_key, 'live/{phase}/')"
            )
            done = {row.object_key: float(row.finished) for row in rows}
    assert done.keys() == sent.keys(), f"{len(sent) - len(done)} objects are not converted"
    return sorted(done[key] - sent[key] for key in sent)


def _p(seconds: Sequence[float], share: int) -> float:
    return statistics.quantiles(seconds, n=100)[share - 1]


def _line(name: str, seconds: Sequence[float]) -> tuple[str, ...]:
    return name, str(len(seconds)), f"{_p(seconds, 50):.2f}", f"{_p(seconds, 99):.2f}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench history", description=__doc__)
    parser.add_argument("--objects", type=int, default=100_000, help="old objects")
    parser.add_argument("--seconds", type=float, default=120, help="seconds of the live table alone")
    options = parser.parse_args()
    with bench_stack({"postgres", "s3", "aws"}) as (_, folder):
        os.environ["PRISM_SPARK_REMOTE"] = "in-process"
        context = build_context(load_settings())
        _apply(context, folder)
        _put_old(context, options.objects)
        words = [*_PRISM, "worker", "--table", "bench.live", "--list-seconds", "1"]
        worker = subprocess.Popen(words, stdout=subprocess.DEVNULL)
        try:
            until_held(context, 1)
            _live(context, "warm", _for(10))
            alone = _live(context, "alone", _for(options.seconds))
            begun = time.monotonic()
            history = subprocess.Popen([*_PRISM, "history", "bench.old", "--from", f"{_FIRST}"])
            beside = _live(context, "beside", lambda: history.poll() is None)
            took = time.monotonic() - begun
            assert history.returncode == 0
        finally:
            worker.terminate()
            worker.wait()
        rate = options.objects / took
        return 0 if _report(options.objects, alone, beside, rate) else 1


def _for(seconds: float) -> Callable[[], bool]:
    end = time.monotonic() + seconds
    return lambda: time.monotonic() < end


def _report(objects: int, alone: Sequence[float], beside: Sequence[float], rate: float) -> bool:
    verdict = Verdict("", "p99 beside the history : alone", _p(beside, 99) / _p(alone, 99), _MOST, at_most=True)
    return Report(
        entry="history",
        title="History: seconds of a live table beside old objects of another",
        verdicts=(verdict,),
        grids=(
            Grid(
                "Seconds from an object to its row",
                ("live table", "objects", "p50", "p99"),
                (_line("alone", alone), _line(f"beside {objects:,} old objects", beside)),
            ),
        ),
        notes=(f"{objects:,} old objects of {_LINES} lines came in, {rate:.0f} a second.",),
        figures={"p99 alone: s": round(_p(alone, 99), 2), "p99 beside: s": round(_p(beside, 99), 2)},
    ).publish()


if __name__ == "__main__":
    sys.exit(main())
