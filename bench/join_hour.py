"""Join tables in real time: the age of changes when readers see them, and the writes of folds, in an hour of traffic.

Records appear at an even rate. Each has a change from three streams: one at its start, 90 % of the others within 10
minutes, the rest within the window of 3 hours. Objects arrive in S3 every 10 seconds, and discovery, conversion, folds
and catalog runs follow as sensors would run them. Two readers poll every few seconds: one reads Glue's view, the other
reads like `prism query` and waits for no fold. The run fails if a record is ever doubled, if one loses a part seen
before, or if a change is not readable in the end.

    scripts/bench join_hour [--minutes 60] [--per-hour 4000]
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path

import numpy as np

from bench.platform import bench_platform
from bench.report import RESULTS
from prism_assets.merge_on_read.reader import RecordsReader
from prism_assets.reading.lake_reader import LakeReader
from prism_assets.reading.query import Reader, run_query
from prism_assets.stages.apply.run import run_apply
from prism_assets.stages.catalog.run import run_catalog
from prism_assets.stages.context import StageContext
from prism_assets.stages.discover.listings import run_discover
from prism_assets.stages.fold.report import Fold
from prism_assets.stages.fold.run import run_fold
from prism_assets.stages.stream.run import run_stream

GROUPS = ("front", "back", "billing")
SOON, WINDOW = 600, 3 * 3_600
TURN_SECONDS = 10.0
LOOK_SECONDS = 10.0
RECORDS = "bench.visit"

_TABLE = """\
schema: bench
table: visit
key: [id]
streams:
  - {name: front, url: "s3://prism-staging/front/", group: front}
  - {name: back, url: "s3://prism-staging/back/", group: back}
  - {name: billing, url: "s3://prism-staging/billing/", group: billing}
groups:
  front: {}
  back: {}
  billing: {}
partition: {column: time}
columns:
  - {name: id, type: bigint}
  - {name: time, type: timestamp}
  - {name: front, type: string, length: 200, group: front}
  - {name: back, type: string, length: 200, group: back}
  - {name: billing, type: string, length: 200, group: billing}
window: 3h
lateness: 1h
buckets: 4
publish: {every: 5m, dirty: 0.1, stale: 60m}
"""
_SEEN = f"SELECT id, {', '.join(f'{group} IS NOT NULL' for group in GROUPS)} FROM {RECORDS}"

Change = tuple[int, str]
"""The number of a record, and the group of the change."""


def changes_of(seed: int, per_hour: int, seconds: float) -> list[tuple[float, Change]]:
    """Returns the traffic's changes with their times in seconds from its start. Leaves out changes after its end."""
    chance = random.Random(seed)
    found = []
    for number in range(round(per_hour * seconds / 3_600)):
        birth = number * 3_600 / per_hour
        first, *later = chance.sample(GROUPS, len(GROUPS))
        found.append((birth, (number, first)))
        for group in later:
            spread = SOON if chance.random() < 0.9 else WINDOW
            found.append((birth + chance.random() * spread, (number, group)))
    return sorted(item for item in found if item[0] < seconds)


@dataclass
class Watcher:
    """One reader: when it first saw each change, and forbidden observations."""

    name: str
    reader: Callable[[], Reader]
    seen: dict[Change, float] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    looks: int = 0

    def look(self) -> None:
        """Reads all records once. Changes arrived before the reading count as seen by it."""
        began = time.time()
        rows = run_query(self.reader(), _SEEN).rows
        shown = {(row[0], group) for row in rows for group, there in zip(GROUPS, row[1:], strict=True) if there}
        if len({row[0] for row in rows}) < len(rows):
            self.faults.append(f"{self.name}: a record was there twice")
        if gone := self.seen.keys() - shown:
            self.faults.append(f"{self.name}: {len(gone)} changes were seen and are gone, such as {min(gone)}")
        for change in shown - self.seen.keys():
            self.seen[change] = began
        self.looks += 1


@dataclass
class Looking(threading.Thread):
    """A thread in which readers poll until told to end."""

    watchers: Sequence[Watcher]
    error: BaseException | None = None
    ended: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        super().__init__(daemon=True)

    __hash__ = threading.Thread.__hash__

    def run(self) -> None:
        try:
            while not self.ended.wait(LOOK_SECONDS):
                for watcher in self.watchers:
                    watcher.look()
        except BaseException as error:
            self.error = error

    def finish(self) -> None:
        """Waits for the last reading. Raises the error that stopped the thread early."""
        self.ended.set()
        self.join()
        if self.error is not None:
            raise self.error


@dataclass
class Hour:
    """The traffic, the arrival of each change in S3, and the folds."""

    context: StageContext
    changes: Sequence[tuple[float, Change]]
    arrived: dict[Change, float] = field(default_factory=dict)
    folds: list[Fold] = field(default_factory=list)

    def live(self, seconds: float) -> None:
        """Lets the changes arrive in time, and runs the stages."""
        begun = time.time()
        due, turn = iter([*self.changes, (float("inf"), (0, ""))]), 0
        waiting = next(due)
        while (passed := time.time() - begun) < seconds or waiting[0] < seconds:
            chosen: list[tuple[float, Change]] = []
            while waiting[0] <= passed:
                chosen.append((begun + waiting[0], waiting[1]))
                waiting = next(due)
            self._put(turn, chosen)
            self._turn()
            if turn % 30 == 0:
                print(f"{passed / 60:.1f} minutes: {len(self.arrived)} changes, {len(self.folds)} folds", flush=True)
            turn += 1
            time.sleep(max(0.0, TURN_SECONDS - (time.time() - begun - passed)))

    def _put(self, turn: int, chosen: Sequence[tuple[float, Change]]) -> None:
        for group in GROUPS:
            lines = [_line(at, number, group) for at, (number, of) in chosen if of == group]
            if lines:
                body = gzip.compress("".join(lines).encode(), 1, mtime=0)
                self.context.stores.put("prism-staging", f"{group}/{turn:06}.gz", body)
                now = time.time()
                self.arrived |= {(number, of): now for _, (number, of) in chosen if of == group}

    def _turn(self) -> None:
        now = datetime.now(timezone.utc)
        run_discover(self.context, now=now)
        errors = list(run_stream(self.context, now=now).errors)
        folded = run_fold(self.context, now=datetime.now(timezone.utc))
        self.folds += folded.folds
        errors += folded.errors
        if folded.folds:
            errors += run_catalog(self.context, now=now, names=[RECORDS]).errors
        if errors:
            raise RuntimeError("; ".join(errors))


def _line(at: float, number: int, group: str) -> str:
    moment = datetime.fromtimestamp(at, timezone.utc).isoformat(timespec="milliseconds")
    return json.dumps({"id": number, "time": moment, group: f"{group} of {number}"}) + "\n"


def ages(watcher: Watcher, arrived: Mapping[Change, float], end: float) -> str:
    """Returns percentiles of the seconds from arrival until a reader saw a change. Unseen changes count as old as at
    the end.

    Changes shortly before the end do not count, because it is unknown when readers would have seen them.
    """
    counted = {change: since for change, since in arrived.items() if since < end - SOON}
    found = [watcher.seen.get(change, end) - since for change, since in (counted or arrived).items()]
    return ", ".join(f"{name} {np.percentile(found, share):.0f} s" for name, share in _SHARES.items())


_SHARES = {"p50": 50, "p90": 90, "p99": 99, "most": 100}


def report_lines(hour: Hour, watchers: Sequence[Watcher], minutes: float, end: float) -> Iterator[str]:
    """Yields the lines of the report."""
    records = len({number for number, _ in hour.arrived})
    rows = sum(fold.counts.rows_written for fold in hour.folds)
    folded = sum(fold.counts.changes_folded for fold in hour.folds)
    yield f"# {minutes:g} minutes of a join table in real time"
    yield ""
    yield f"{len(hour.arrived):,} changes of {records:,} records, in {len(hour.folds)} folds; window 3 h, "
    yield "`publish: {every: 5m, dirty: 0.1, stale: 60m}`. Local stack, kernels on Spark; objects arrive each 10 s."
    yield ""
    yield f"- rows written by folds: {rows:,}, {rows / records:.2f} per record, {rows / max(folded, 1):.2f} per change"
    for watcher in watchers:
        yield f"- {watcher.name}: readable after {ages(watcher, hour.arrived, end)} ({watcher.looks} looks)"


def main() -> int:
    """Runs for the given minutes. Returns 1 after a forbidden observation, or if a change is unreadable at the end."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--per-hour", type=int, default=4_000, help="records that are born in an hour")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    seconds = options.minutes * 60
    with bench_platform() as (context, folder):
        tables = folder / "tables"
        tables.mkdir()
        (tables / "visit.yaml").write_text(_TABLE)
        run_apply(context, tables, datetime.now(timezone.utc))
        run_catalog(context, now=datetime.now(timezone.utc))
        hour = Hour(context, changes_of(1, options.per_hour, seconds))
        with RecordsReader(context.settings) as current:
            catalog = LakeReader(context.settings)
            watchers = [Watcher("Glue", lambda: catalog), Watcher("prism query", lambda: current)]
            looking = Looking(watchers)
            looking.start()
            hour.live(seconds)
            looking.finish()
            lines = list(report_lines(hour, watchers, options.minutes, time.time()))
            watchers[1].look()
            faults = [fault for watcher in watchers for fault in watcher.faults]
            if missing := hour.arrived.keys() - watchers[1].seen.keys():
                faults.append(f"{len(missing)} changes are not readable in the end, such as {min(missing)}")
    options.results.mkdir(exist_ok=True)
    (options.results / "join_hour.md").write_text("\n".join(lines) + "\n")
    print("\n".join([*lines, *faults]))
    return bool(faults)


if __name__ == "__main__":
    raise SystemExit(main())
