"""Lives of a lake, as data: arrivals with their times, and stages to run. After a death a life continues where it
ended.

A life depends only on its name and seed, so the playing and the judging process agree on every row. `play` runs in a
separate process and records each finished phase.
"""

from __future__ import annotations

import gzip
import io
import itertools
import json
import os
import random
import re
import time
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import boto3
import pyarrow.parquet as pq

from prism_assets.domain.erasures.records import ErasureRecord
from prism_assets.domain.errors import TerminalError
from prism_assets.domain.files.keys import table_folder
from prism_assets.domain.records.folding import RecordPart
from prism_assets.metadata.files import merge_jobs
from prism_assets.metadata.records import record_objects
from prism_assets.objectstore.erasure_records import put_record
from prism_assets.platform import build_context
from prism_assets.settings import load_settings
from prism_assets.stages.apply.run import run_apply
from prism_assets.stages.catalog.run import run_catalog
from prism_assets.stages.close_open_days import close_open_days
from prism_assets.stages.context import StageContext
from prism_assets.stages.discover.listings import run_discover
from prism_assets.stages.drop.run import run_drop
from prism_assets.stages.erase.plan import plan_erasure
from prism_assets.stages.erase.rules import withdraw_erasure
from prism_assets.stages.erase.run import continue_erasures, run_erase
from prism_assets.stages.gc.run import run_gc
from prism_assets.stages.iceberg.adopt import run_adopt
from prism_assets.stages.iceberg.report import IcebergReport
from prism_assets.stages.iceberg.run import run_iceberg
from prism_assets.stages.leases import takeover_seconds
from prism_assets.stages.merge.run import run_merge
from prism_assets.stages.rebuild.run import run_rebuild
from prism_assets.stages.repair.run import run_repair
from prism_assets.stages.replay.run import run_replay
from prism_assets.stages.run import CycleReport, lasting_errors, run_once, run_until_idle
from prism_assets.stages.stream.plan import start_batch
from prism_assets.stages.stream.run import run_stream
from prism_assets_tests import nested
from prism_assets_tests.builders import a_table, utc
from prism_assets_tests.notifications import a_body, a_record
from prism_assets_tests.parquet import read_parquet

BROKEN = b"broken\n"
VANISHING = "-vanishes.gz"
KEEP = 'keep: "id > 0"\n'
"""The filter of a table's file. Filtered rows of a drop have the id 0."""
_OLD_FORMAT = "timestamps: milliseconds\n"
_LINKED = "symlink: true\n"
_REFUSING = "reject: [{when: \"time < TIMESTAMP '2026-03-01 11:30'\", reason: not_yet}]\n"
_EXTRA = '  - {name: extra, url: "s3://staging/extra/"}\n'
_NOISE = '  - {name: noise, url: "s3://staging/noise/", discard: true}\n'
_SAID = "{name: said, type: string, value: \"'yes'\"}"
_NUMBER = '{name: number, type: integer, value: "7"}'
_JOIN = """\
schema: log
table: parts
key: [id]
streams: [{name: parts, url: "s3://staging/parts/", group: part}]
groups: {part: null}
columns: [{name: time, type: timestamp}, {name: id, type: bigint}]
window: 1h
lateness: 2h
merge: {interval: 0}
accept: {from: arrival}
"""
HIDDEN_SECONDS = 1
"""How long a received message stays hidden from others."""


@dataclass(frozen=True)
class Drop:
    """One staging object: rows as (id, time), then broken lines with this many incompressible bytes.

    Filtered lines stand between the two. The object may vanish before a read, be discarded with its stream, have too
    old rows, be `gone` with its table, or end up `archived`. Its folder has the table's name, or feeds the table at
    that time.
    """

    table: str
    name: str
    rows: tuple[tuple[int, datetime], ...]
    broken: int = 0
    vanishes: bool = False
    broken_bytes: int = 0
    filtered: int = 0
    folder: str = ""
    discarded: bool = False
    too_old: bool = False
    gone: bool = False
    archived: bool = False
    whole: bytes = b""
    """All lines of the object, where several tables divide them. Each of them has a drop of this key."""
    elsewhere: int = 0
    """Lines of the other tables."""
    nested: bool = False
    """Each row has nested values, too."""
    is_document: bool = False
    """The rows are records of documents, and the broken ones are no objects."""

    @property
    def key(self) -> str:
        """The key in the staging bucket."""
        return f"{self.folder or self.table.split('.')[1]}/2026/{self.name}.gz"

    @property
    def lines(self) -> int:
        """The number of counted lines."""
        return len(self.kept) + self.filtered + self.set_aside + self.elsewhere

    @property
    def kept(self) -> tuple[tuple[int, datetime], ...]:
        """The accepted rows."""
        return () if self.vanishes or self.discarded or self.too_old or self.gone else self.rows

    @property
    def set_aside(self) -> int:
        """How many lines go to quarantine."""
        return 0 if self.discarded or self.gone else self.broken + (len(self.rows) if self.too_old else 0)

    def body(self) -> bytes:
        """The bytes, always the same."""
        if self.whole:
            return gzip.compress(self.whole, 1, mtime=0)
        unwanted = ((0, self.rows[0][1]) for _ in range(self.filtered))
        rows = [
            {
                "time": at.isoformat().replace("+00:00", "Z"),
                "id": number,
                **(nested.written(number) if self.nested else {}),
            }
            for number, at in (*self.rows, *unwanted)
        ]
        if self.is_document:
            return gzip.compress(nested.documents(rows, self.name, self.broken), 1, mtime=0)
        lines = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
        noise = random.Random(self.name)
        broken = [b64encode(noise.randbytes(self.broken_bytes)) + BROKEN for _ in range(self.broken)]
        return gzip.compress(lines + b"".join(broken), 1, mtime=0)


@dataclass(frozen=True)
class Phase:
    """Arrivals up to an instant, and the stages to run then, in order."""

    now: datetime
    steps: tuple[str, ...]
    drops: tuple[Drop, ...] = ()


@dataclass(frozen=True)
class Life:
    """Tables by name with their zones, and phases in order."""

    tables: Mapping[str, str]
    files: tuple[str, ...]
    phases: tuple[Phase, ...]
    watched: tuple[str, ...]
    """Tables with a reader polling all the time. The others are damaged on purpose meanwhile."""
    more: tuple[Drop, ...] = ()
    """Arrivals outside of the phases."""
    rest: tuple[str, ...] = ("run",)
    """The last stages."""
    queue: bool = False
    """The bucket sends notifications of arrivals."""
    collected: tuple[str, ...] = ()
    """Tables with garbage collection, as if days passed between two reads; therefore nobody watches them."""
    shown: tuple[str, ...] = ()
    """Tables published as Iceberg at the end."""
    linked: tuple[str, ...] = ()
    """Tables shown by symlinks at the end."""
    ended: frozenset[tuple[str, date]] = frozenset()
    """Tables with expired days. A reader may see such a day vanish as a whole."""
    erased: Mapping[str, int] = field(default_factory=dict)
    """For each table a number; rows with ids divisible by it are gone at the end."""
    nested: tuple[str, ...] = ()
    """Tables with the columns of `nested`."""
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def vanished(self) -> int:
        """How many objects are given up in the end."""
        return sum(drop.vanishes for drop in self.drops)

    @property
    def drops(self) -> tuple[Drop, ...]:
        """All arrivals."""
        return (*(drop for phase in self.phases for drop in phase.drops), *self.more)

    @property
    def rests(self) -> tuple[Phase, ...]:
        """Two runs an hour apart when nothing arrives any more: by then everything must be at rest."""
        end = self.phases[-1].now
        return tuple(Phase(end + timedelta(hours=hour), self.rest) for hour in (1, 2))

    def expected(self) -> dict[tuple[str, date], set[int]]:
        """The ids readers must see in each partition at the end."""
        found: dict[tuple[str, date], set[int]] = {}
        for drop in self.drops:
            zone = ZoneInfo(self.tables[drop.table])
            for number, at in drop.kept:
                if (place := (drop.table, at.astimezone(zone).date())) not in self.ended:
                    ids = found.setdefault(place, set())
                    ids.update(() if self.is_erased(drop.table, number) else (number,))
        return found

    def is_erased(self, table: str, number: int) -> bool:
        """Whether a row is gone in the end."""
        return table in self.erased and number % self.erased[table] == 0

    def erased_aside(self, drop: Drop) -> int:
        """Returns how many quarantined lines match an erasure, and are gone at the end."""
        return sum(self.is_erased(drop.table, number) for number, _ in drop.rows) if drop.too_old else 0


class Author:
    """Makes drops with ids unique in the life."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self._ids = itertools.count(1)
        self._names = itertools.count(1)

    def drop(
        self,
        table: str,
        *starts: str,
        rows: int = 8,
        broken: int = 0,
        vanishes: bool = False,
        broken_bytes: int = 0,
        filtered: int = 0,
    ) -> Drop:
        """An object with some rows from each of the instants on."""
        parts: list[tuple[int, datetime]] = []
        for start in starts:
            count = rows + self.random.randrange(5)
            parts += [(next(self._ids), utc(start) + timedelta(seconds=second)) for second in range(count)]
        name = f"{next(self._names):06}{VANISHING.removesuffix('.gz') if vanishes else ''}"
        return Drop(table, name, tuple(parts), broken, vanishes, broken_bytes, filtered)

    def group(self, start: str, *, broken: int = 0) -> tuple[Drop, ...]:
        """An object whose lines log.events and log.clicks divide by their kind, with parts of log.parts inside.

        Broken lines belong to log.clicks. They are records of log.parts, too.
        """
        rows: dict[str, list[tuple[int, datetime]]] = {"event": [], "view": [], "click": []}
        parts: list[tuple[int, datetime]] = []
        lines = []
        for second in range(9 + self.random.randrange(4)):
            kind, at = self.random.choice(["event", "view", "click"]), utc(start) + timedelta(seconds=second)
            inside = [(next(self._ids), at) for _ in range(self.random.randrange(3))]
            row = {**_written(next(self._ids), at), "kind": kind, "items": [_written(*item) for item in inside]}
            rows[kind].append((row["id"], at))
            parts += inside
            lines.append(json.dumps(row).encode() + b"\n")
        name, folder = f"{next(self._names):06}", "group"
        whole = b"".join(lines) + BROKEN * broken
        ours, others = (*rows["event"], *rows["view"]), tuple(rows["click"])
        return (
            Drop("log.events", name, ours, folder=folder, whole=whole, elsewhere=len(others) + broken),
            Drop("log.clicks", name, others, broken, folder=folder, whole=whole, elsewhere=len(ours)),
            Drop("log.parts", name, tuple(parts), broken, folder=folder, whole=whole),
        )


def _written(number: int, at: datetime) -> dict[str, Any]:
    return {"time": at.isoformat().replace("+00:00", "Z"), "id": number}


def days(seed: int) -> Life:
    """Three days of two tables in two zones: open, closed with late rows, merged in several ranges, switched, and late
    again, so that a range is extended. One table filters lines.
    """
    author = Author(seed)
    drop = author.drop
    events, clicks = "log.events", "log.clicks"
    target = 3_000 + author.random.randrange(3) * 500
    phases = (
        Phase(utc("2026-03-01T00:00"), ("apply",)),
        Phase(
            utc("2026-03-01T12:00"),
            ("run",),
            (
                drop(events, "2026-03-01T11:00", broken=2),
                drop(events, "2026-02-28T23:00", "2026-03-01T10:00"),
                drop(clicks, "2026-03-01T11:00", filtered=3),
            ),
        ),
        Phase(
            utc("2026-03-01T18:00"),
            ("run",),
            (
                *(drop(events, "2026-03-01T17:00", broken=author.random.randrange(2)) for _ in range(3)),
                drop(clicks, "2026-03-01T14:30", "2026-03-01T16:00", broken=1, filtered=2),
            ),
        ),
        Phase(utc("2026-03-02T00:10"), ("catalog",)),
        Phase(
            utc("2026-03-02T00:20"),
            ("discover", "stream", "catalog", "run"),
            (drop(events, "2026-03-01T23:00", "2026-03-02T00:05"), drop(events, "2026-03-01T22:00")),
        ),
        Phase(
            utc("2026-03-02T12:00"),
            ("run",),
            (drop(events, "2026-03-01T20:00", "2026-03-02T11:00", broken=1), drop(clicks, "2026-03-02T11:00")),
        ),
        Phase(utc("2026-03-03T01:00"), ("run",)),
    )
    merge = f"{{interval: 0, target_bytes: {target}, max_objects: 4}}"
    return Life(
        tables={events: "UTC", clicks: "Asia/Tokyo"},
        files=(a_table(events, merge=merge), a_table(clicks, timezone="Asia/Tokyo", merge="{interval: 0}") + KEEP),
        phases=phases,
        watched=(events, clicks),
    )


def damage(seed: int) -> Life:
    """A day with objects of another version, two of them lost before publication: repair."""
    author = Author(seed)
    events, clicks = "log.events", "log.clicks"
    hour = "2026-03-01T11:00"
    drops = (*(author.drop(events, hour, broken=number % 2) for number in range(3)), author.drop(clicks, hour))
    return Life(
        tables={events: "UTC", clicks: "UTC"},
        files=(a_table(events, merge="{interval: 0}"), a_table(clicks, merge="{interval: 0}")),
        phases=(
            Phase(utc("2026-03-01T00:00"), ("apply",)),
            Phase(utc("2026-03-01T12:00"), ("discover", "stream"), drops),
            Phase(utc("2026-03-01T12:10"), ("reencode",)),
            Phase(utc("2026-03-02T00:10"), ("catalog",)),
            Phase(utc("2026-03-02T00:20"), ("lose",)),
            Phase(utc("2026-03-02T00:30"), ("repair", "catalog")),
            Phase(utc("2026-03-03T01:00"), ("run",)),
        ),
        watched=(clicks,),
        rest=("repair", "run"),
    )


def messages(seed: int) -> Life:
    """Two days of a bucket with notifications. Each message comes, some repeatedly."""
    author = Author(seed)
    events = "log.events"
    return Life(
        tables={events: "UTC"},
        files=(a_table(events, merge="{interval: 0}"),),
        phases=(
            Phase(utc("2026-03-01T00:00"), ("apply",)),
            Phase(
                utc("2026-03-01T12:00"),
                ("discover", "discover", "run"),
                tuple(author.drop(events, "2026-03-01T11:00", broken=number) for number in range(3)),
            ),
            Phase(utc("2026-03-02T12:00"), ("run",), (author.drop(events, "2026-03-01T13:00", "2026-03-02T11:00"),)),
            Phase(utc("2026-03-03T01:00"), ("run",)),
        ),
        watched=(events,),
        rest=("wait", "run"),
        queue=True,
    )


def losses(seed: int) -> Life:
    """An object that vanishes and is given up, a key written later by a forgotten task, and dying workers."""
    author = Author(seed)
    events, clicks = "log.events", "log.clicks"
    hour = "2026-03-01T11:00"
    return Life(
        tables={events: "UTC", clicks: "UTC"},
        files=(a_table(events, merge="{interval: 0}"), a_table(clicks, merge="{interval: 0}")),
        phases=(
            Phase(utc("2026-03-01T00:00"), ("apply",)),
            Phase(
                utc("2026-03-01T12:00"),
                ("discover", "vanish", "run"),
                (author.drop(events, hour), author.drop(events, hour, vanishes=True), author.drop(clicks, hour)),
            ),
            Phase(utc("2026-03-01T12:30"), ("stray", "repair")),
            Phase(
                utc("2026-03-01T13:00"),
                ("discover", "orphan", "run"),
                (author.drop(clicks, hour), author.drop(clicks, hour, broken=1), author.drop(events, hour)),
            ),
            Phase(utc("2026-03-01T14:00"), ("discover", "stream", "orphan merge", "run"), (author.drop(clicks, hour),)),
            Phase(utc("2026-03-02T12:00"), ("run",)),
            Phase(utc("2026-03-03T01:00"), ("run",)),
        ),
        watched=(clicks,),
        rest=("repair", "run"),
        settings={"max_attempts": 2},
    )


def garbage(seed: int) -> Life:
    """A switched and extended day, with garbage collections as if days later."""
    author = Author(seed)
    events, clicks = "log.events", "log.clicks"
    hour = "2026-03-01T11:00"
    return Life(
        tables={events: "UTC", clicks: "UTC"},
        files=(a_table(events, merge="{interval: 0}"), a_table(clicks, merge="{interval: 0}")),
        phases=(
            Phase(utc("2026-03-01T00:00"), ("apply",)),
            Phase(
                utc("2026-03-01T12:00"),
                ("run", "gc"),
                (*(author.drop(events, hour, broken=number) for number in range(2)), author.drop(clicks, hour)),
            ),
            Phase(utc("2026-03-02T12:00"), ("run", "gc")),
            Phase(utc("2026-03-02T13:00"), ("run", "gc"), (author.drop(events, hour),)),
            Phase(utc("2026-03-03T01:00"), ("run",), (author.drop(events, hour), author.drop(clicks, hour))),
        ),
        watched=(clicks,),
        rest=("run", "gc"),
        collected=(events,),
        settings={"gc_max_fraction": 1.0, "quarantine_days": 36_500},
    )


def shown(seed: int) -> Life:
    """Two days of tables published as Iceberg at every step, one until the second day, one from then on."""
    author = Author(seed)
    drop = author.drop
    events, clicks, visits = "log.events", "log.clicks", "log.visits"
    merge = "{interval: 0, target_bytes: 3000, max_objects: 4}"
    return Life(
        tables={events: "UTC", clicks: "UTC", visits: "UTC"},
        files=(
            a_table(events, merge=merge, iceberg="true"),
            a_table(clicks, merge="{interval: 0}", iceberg="true"),
            a_table(visits, merge="{interval: 0}") + _OLD_FORMAT,
        ),
        phases=(
            Phase(utc("2026-03-01T00:00"), ("apply",)),
            Phase(
                utc("2026-03-01T12:00"),
                ("run", "iceberg"),
                (
                    drop(events, "2026-03-01T11:00", broken=1),
                    drop(clicks, "2026-03-01T11:00"),
                    drop(visits, "2026-03-01T11:00"),
                ),
            ),
            Phase(utc("2026-03-01T18:00"), ("discover", "stream", "iceberg"), (drop(events, "2026-03-01T17:00"),)),
            Phase(
                utc("2026-03-02T00:20"),
                ("run", "merge --all", "iceberg", "withdraw", "adopt", "iceberg"),
                (drop(events, "2026-03-01T23:00", "2026-03-02T00:05"),),
            ),
            Phase(utc("2026-03-03T01:00"), ("run", "iceberg"), (drop(events, "2026-03-01T22:00"),)),
        ),
        watched=(events, clicks, visits),
        rest=("run", "iceberg"),
        shown=(events, visits),
    )


def rebuilt(seed: int) -> Life:
    """A closed, switched and late day, rebuilt under a new definition each time. Refused lines of another table are
    replayed after their day: from objects without rows, from one with rows, and lines of an otherwise empty day.
    """
    author = Author(seed)
    drop = author.drop
    events, clicks = "log.events", "log.clicks"
    noon = "2026-03-01T11:00"
    merge = "{interval: 0, target_bytes: 5000, max_objects: 3}"
    return Life(
        tables={events: "UTC", clicks: "UTC"},
        files=(
            a_table(events, merge=merge, iceberg="true"),
            a_table(clicks, merge="{interval: 0}") + _REFUSING,
        ),
        phases=(
            Phase(utc("2026-03-01T00:00"), ("apply",)),
            Phase(
                utc("2026-03-01T12:00"),
                ("run", "iceberg"),
                (
                    drop(clicks, noon, broken=1),
                    drop(clicks, noon),
                    drop(clicks, "2026-02-27T11:00", "2026-03-01T11:45"),
                    *(drop(events, noon) for _ in range(5)),
                ),
            ),
            Phase(utc("2026-03-02T00:10"), ("catalog", "redefine", "rebuild", "replay", "catalog")),
            Phase(
                utc("2026-03-02T13:00"),
                ("run", "discover", "stream", "redefine", "rebuild", "iceberg", "run"),
                (drop(events, "2026-03-01T22:00", "2026-03-02T11:00"), drop(clicks, "2026-03-02T11:00")),
            ),
            Phase(utc("2026-03-03T01:00"), ("run",)),
        ),
        watched=(events, clicks),
        rest=("run", "iceberg"),
        shown=(events,),
    )


def streams(seed: int) -> Life:
    """A stream that moves to another table, a stream stopped across midnight, and a discarded one."""
    author = Author(seed)
    drop = author.drop
    events, clicks = "log.events", "log.clicks"
    hour = "2026-03-01T11:00"
    return Life(
        tables={events: "UTC", clicks: "UTC"},
        files=(
            a_table(events, merge="{interval: 0}"),
            a_table(clicks, merge="{interval: 0}").replace("streams:\n", f"streams:\n{_EXTRA}{_NOISE}"),
        ),
        phases=(
            Phase(utc("2026-03-01T00:00"), ("apply",)),
            Phase(
                utc("2026-03-01T12:00"),
                ("run",),
                (
                    drop(events, hour),
                    drop(clicks, hour, broken=1),
                    replace(drop(clicks, hour), folder="extra"),
                    replace(drop(clicks, hour), folder="noise", discarded=True),
                ),
            ),
            Phase(
                utc("2026-03-01T13:00"),
                ("move", "run"),
                (replace(drop(events, hour, broken=1), folder="extra"), drop(clicks, hour)),
            ),
            Phase(utc("2026-03-01T14:00"), ("stop", "run"), (drop(events, hour), drop(clicks, hour))),
            Phase(
                utc("2026-03-02T00:20"),
                ("run", "resume", "run"),
                (drop(events, hour, "2026-03-02T00:05"), replace(drop(events, hour), folder="extra")),
            ),
            Phase(utc("2026-03-03T01:00"), ("run",), (drop(clicks, hour),)),
        ),
        watched=(events, clicks),
    )


def shared(seed: int) -> Life:
    """Two tables read one prefix, and share its objects by their keys."""
    author = Author(seed)
    events, clicks = "log.events", "log.clicks"

    def drop(table: str, *starts: str) -> Drop:
        return replace(author.drop(table, *starts, broken=1), folder=f"both/{table.split('.')[1]}")

    return Life(
        tables={events: "UTC", clicks: "UTC"},
        files=tuple(
            a_table(table, merge="{interval: 0}").replace(
                f'/{table.split(".")[1]}/"}}', f'/both/", route: {{{route}}}}}'
            )
            for table, route in ((events, 'key: "events/*/*"'), (clicks, "otherwise: true"))
        ),
        phases=(
            Phase(utc("2026-03-01T00:00"), ("apply",)),
            Phase(
                utc("2026-03-01T12:00"), ("run",), tuple(drop(table, "2026-03-01T11:00") for table in (events, clicks))
            ),
            Phase(
                utc("2026-03-02T12:00"),
                ("run",),
                tuple(drop(table, "2026-03-01T13:00", "2026-03-02T11:00") for table in (events, clicks)),
            ),
            Phase(utc("2026-03-03T01:00"), ("run",)),
        ),
        watched=(events, clicks),
    )


def grouped(seed: int) -> Life:
    """Two tables divide the lines of one prefix, and a third one reads records inside of them.

    A kind moves from one table to the other while an object has been read by one of them. Then both rebuild the day.
    """
    author = Author(seed)
    events, clicks, parts = "log.events", "log.clicks", "log.parts"
    routes = {
        events: "route: {by: $.kind, in: [event]}",
        clicks: "route: {by: $.kind, otherwise: true}",
        parts: 'format: {json: {records: "$.items[*]"}}',
    }
    return Life(
        tables=dict.fromkeys(routes, "UTC"),
        files=tuple(
            a_table(table, merge="{interval: 0}").replace(f'/{table.split(".")[1]}/"}}', f'/group/", {share}}}')
            for table, share in routes.items()
        ),
        phases=(
            Phase(utc("2026-03-01T00:00"), ("apply",)),
            Phase(utc("2026-03-01T12:00"), ("run",), author.group("2026-03-01T11:00", broken=2)),
            Phase(
                utc("2026-03-01T13:00"),
                ("discover", "stream events", "reroute", "run"),
                (*author.group("2026-03-01T12:30", broken=1), *author.group("2026-03-01T12:40")),
            ),
            Phase(utc("2026-03-02T12:00"), ("run",), author.group("2026-03-02T11:00", broken=1)),
            Phase(utc("2026-03-02T13:00"), ("rebuild group", "run")),
            Phase(utc("2026-03-03T01:00"), ("run",)),
        ),
        watched=(events, parts),
    )


def retention(seed: int) -> Life:
    """Two tables with days expiring one after another, one of them Iceberg. Some rows come too late."""
    author = Author(seed)
    drop = author.drop
    events, clicks = "log.events", "log.clicks"
    noons = [f"2026-03-0{day}T11:00" for day in (1, 2, 3)]
    keeps = "retention_days: 2\n"
    return Life(
        tables={events: "UTC", clicks: "UTC"},
        files=(
            a_table(events, merge="{interval: 0}") + keeps,
            a_table(clicks, merge="{interval: 0}", iceberg="true") + keeps,
        ),
        phases=(
            Phase(utc("2026-03-01T00:00"), ("apply",)),
            Phase(utc("2026-03-01T12:00"), ("run",), (drop(events, noons[0], broken=1), drop(clicks, noons[0]))),
            Phase(utc("2026-03-02T12:00"), ("run",), (drop(events, *noons[:2]), drop(clicks, noons[1]))),
            Phase(utc("2026-03-03T12:00"), ("run",), (drop(events, noons[2]), drop(clicks, noons[2]))),
            Phase(utc("2026-03-04T00:20"), ("run",), (drop(events, *noons[:2]),)),
            Phase(
                utc("2026-03-04T06:00"),
                ("run",),
                (replace(drop(events, noons[0], broken=1), too_old=True), drop(events, noons[1])),
            ),
            Phase(utc("2026-03-05T06:00"), ("run",), (replace(drop(clicks, noons[0]), too_old=True),)),
        ),
        watched=(events, clicks),
        shown=(clicks,),
        ended=frozenset((table, date(2026, 3, day)) for table in (events, clicks) for day in (1, 2)),
    )


def archived(seed: int) -> Life:
    """A table with two expiring days. At the end PostgreSQL has only their former existence."""
    author = Author(seed)
    events = "log.events"
    noons = [f"2026-03-0{day}T11:00" for day in (1, 2, 3)]

    def old(*starts: str) -> Drop:
        return replace(author.drop(events, *starts), archived=True)

    return Life(
        tables={events: "UTC"},
        files=(a_table(events, merge="{interval: 0}") + "retention_days: 2\n",),
        phases=(
            Phase(utc("2026-03-01T00:00"), ("apply",)),
            Phase(utc("2026-03-01T12:00"), ("run",), (old(noons[0]),)),
            Phase(utc("2026-03-02T12:00"), ("run",), (old(*noons[:2]), old(noons[1]))),
            Phase(utc("2026-03-03T12:00"), ("run",), (author.drop(events, noons[2], broken=1),)),
            Phase(utc("2026-03-05T06:00"), ("run",), (author.drop(events, noons[2]),)),
            Phase(utc("2026-03-05T07:00"), ("run", "archive", "run")),
        ),
        watched=(events,),
        ended=frozenset((events, date(2026, 3, day)) for day in (1, 2)),
        settings={"gc_max_fraction": 1.0, "quarantine_days": 36_500},
    )


def names(seed: int) -> Life:
    """A table renamed while rows come, with its former name removed at once, and a retired and dropped table."""
    author = Author(seed)
    tours, clicks = "log.tours", "log.clicks"

    def drop(*starts: str, broken: int = 0) -> Drop:
        return replace(author.drop(tours, *starts, broken=broken), folder="visits")

    hour = "2026-03-01T11:00"
    return Life(
        tables={tours: "UTC", clicks: "UTC"},
        files=(a_table("log.visits", merge="{interval: 0}"), a_table(clicks, merge="{interval: 0}")),
        phases=(
            Phase(utc("2026-03-01T00:00"), ("apply",)),
            Phase(
                utc("2026-03-01T12:00"),
                ("run",),
                (drop(hour, broken=1), drop(hour), replace(author.drop(clicks, hour, broken=1), gone=True)),
            ),
            Phase(utc("2026-03-01T13:00"), ("discover", "rename", "run"), (drop(hour),)),
            Phase(utc("2026-03-02T12:00"), ("run",), (drop(hour, "2026-03-02T11:00"),)),
            Phase(utc("2026-03-02T18:00"), ("drop", "drop unread", "run")),
            Phase(utc("2026-03-03T01:00"), ("run",), (drop(hour),)),
        ),
        watched=(tours,),
        settings={"gc_max_fraction": 1.0},
    )


def columns(seed: int) -> Life:
    """A column dropped while rows come. Another one takes its name after a rebuild, and is renamed and widened in its
    turn, until Glue shows only the new name.
    """
    author = Author(seed)
    drop = author.drop
    events = "log.events"
    hour = "2026-03-01T11:00"
    return Life(
        tables={events: "UTC"},
        files=(a_table(events, columns=[_SAID], merge="{interval: 0}", iceberg="true"),),
        phases=(
            Phase(utc("2026-03-01T00:00"), ("apply",)),
            Phase(utc("2026-03-01T12:00"), ("run",), (drop(events, hour, broken=1), drop(events, hour))),
            Phase(utc("2026-03-01T13:00"), ("discover", "drop column", "run"), (drop(events, hour),)),
            Phase(utc("2026-03-02T00:20"), ("run",), (drop(events, hour, "2026-03-02T00:05"),)),
            Phase(utc("2026-03-02T12:00"), ("run", "rebuild", "run")),
            Phase(utc("2026-03-02T13:00"), ("take name", "run"), (drop(events, hour, "2026-03-02T11:00"),)),
            Phase(utc("2026-03-02T18:00"), ("rename column", "run"), (drop(events, "2026-03-02T11:00"),)),
            Phase(utc("2026-03-03T01:00"), ("run",), (drop(events, hour, "2026-03-02T11:00"),)),
            Phase(utc("2026-03-03T06:00"), ("run",)),
            Phase(utc("2026-04-03T00:00"), ("run",)),
            Phase(utc("2026-04-03T06:00"), ("run",)),
        ),
        watched=(events,),
        rest=("run", "iceberg"),
        shown=(events,),
    )


def flipped(seed: int) -> Life:
    """A column widened by copies while rows come, some late. No reader finds wide values under a narrow type in Glue,
    and at the end all are wide.
    """
    author = Author(seed)
    drop = author.drop
    events = "log.events"
    hour, next_hour = "2026-03-01T11:00", "2026-03-02T11:00"
    merge = "{interval: 0, target_bytes: 3000, max_objects: 4}"
    return Life(
        tables={events: "UTC"},
        files=(a_table(events, columns=[_NUMBER], merge=merge, iceberg="true"),),
        phases=(
            Phase(utc("2026-03-01T00:00"), ("apply",)),
            Phase(utc("2026-03-01T12:00"), ("run",), (drop(events, hour, broken=1), drop(events, hour))),
            Phase(utc("2026-03-02T00:20"), ("run",), (drop(events, hour, "2026-03-02T00:05"),)),
            Phase(utc("2026-03-02T12:00"), ("discover", "stream", "widen"), (drop(events, hour, next_hour),)),
            Phase(utc("2026-03-02T12:10"), ("merge", "catalog", "discover", "stream"), (drop(events, next_hour),)),
            Phase(utc("2026-03-02T12:15"), ("catalog", "merge", "run"), (drop(events, hour, next_hour),)),
            Phase(utc("2026-03-02T13:00"), ("run",), (drop(events, hour, next_hour),)),
            Phase(utc("2026-03-03T01:00"), ("run",), (drop(events, next_hour),)),
        ),
        watched=(events,),
        rest=("run", "iceberg"),
        shown=(events,),
    )


def linked(seed: int) -> Life:
    """Days of tables with symlinks during merges and garbage collections: one table always, one until its first day is
    over, one from then on.
    """
    author = Author(seed)
    drop = author.drop
    events, clicks, visits = "log.events", "log.clicks", "log.visits"
    hour = "2026-03-01T11:00"
    merge = "{interval: 0, target_bytes: 3000, max_objects: 4}"
    return Life(
        tables={events: "UTC", clicks: "UTC", visits: "UTC"},
        files=(
            a_table(events, merge=merge) + _LINKED,
            a_table(clicks, merge="{interval: 0}") + _LINKED,
            a_table(visits, merge="{interval: 0}"),
        ),
        phases=(
            Phase(utc("2026-03-01T00:00"), ("apply",)),
            Phase(
                utc("2026-03-01T12:00"),
                ("run",),
                (drop(events, hour, broken=1), drop(events, hour), drop(clicks, hour), drop(visits, hour)),
            ),
            Phase(utc("2026-03-02T00:20"), ("run", "link", "catalog"), (drop(events, hour), drop(visits, hour))),
            Phase(utc("2026-03-02T12:00"), ("run", "gc"), (drop(events, hour, "2026-03-02T11:00"),)),
            Phase(utc("2026-03-03T01:00"), ("run",), (drop(events, hour), drop(visits, hour))),
        ),
        watched=(clicks, visits, "log_symlink.visits"),
        rest=("run", "gc"),
        collected=(events,),
        linked=(events, visits),
        settings={"gc_max_fraction": 1.0, "quarantine_days": 36_500},
    )


def erasure(seed: int) -> Life:
    """Rows of an open day, of a closed one and of merged objects are erased, and some of them come again."""
    author = Author(seed)
    drop = author.drop
    events, clicks = "log.events", "log.clicks"
    first, second = "2026-03-01T11:00", "2026-03-02T11:00"
    phases = (
        Phase(utc("2026-03-01T00:00"), ("apply",)),
        Phase(
            utc("2026-03-01T12:00"),
            ("run",),
            (*(drop(events, first, rows=20, broken=2) for _ in range(2)), drop(clicks, first, rows=20)),
        ),
        Phase(utc("2026-03-02T00:10"), ("run",)),
        Phase(utc("2026-03-02T00:20"), ("run",)),
        Phase(
            utc("2026-03-02T12:00"),
            ("discover", "stream", "catalog", "erase", "catalog"),
            (drop(events, first, second, rows=20, broken=1), drop(clicks, first, second, rows=20)),
        ),
        Phase(utc("2026-03-02T13:00"), ("run",), (drop(events, first, second, rows=20, broken=1),)),
        Phase(utc("2026-03-02T14:00"), ("withdraw erasure", "close days early")),
        Phase(utc("2026-03-03T01:00"), ("run", "prove"), (drop(clicks, second, rows=20),)),
    )
    return Life(
        tables={events: "UTC", clicks: "UTC"},
        files=(a_table(events, merge="{interval: 0}"), a_table(clicks, merge="{interval: 0}")),
        phases=phases,
        watched=(events, clicks),
        rest=("run", "prove"),
        erased={events: 7, clicks: 5},
        settings={"gc_max_fraction": 1.0, "quarantine_days": 36_500},
    )


def parts(seed: int) -> Life:
    """Nested rows and records of documents, through late rows, a repair, a rebuild and merges. Rows are erased by a
    field of a struct.
    """
    author = Author(seed)
    events, clicks = "log.events", "log.clicks"
    first, second = "2026-03-01T11:00", "2026-03-02T11:00"

    def drop(table: str, *starts: str, broken: int = 0) -> Drop:
        return replace(author.drop(table, *starts, broken=broken), nested=True, is_document=table == clicks)

    merge, owner = (
        "{interval: 0, target_bytes: 9000, max_objects: 3}",
        "{name: owner, type: string, source: $outer.owner.name}",
    )
    documents = a_table(clicks, columns=[*nested.COLUMNS, owner], merge="{interval: 0}", iceberg="true")
    return Life(
        tables={events: "UTC", clicks: "UTC"},
        files=(
            a_table(events, columns=nested.COLUMNS, merge=merge, iceberg="{metrics: [id, account.id]}"),
            documents.replace('/clicks/"}', '/clicks/", format: {json: {records: "$.records[*]"}}}'),
        ),
        phases=(
            Phase(utc("2026-03-01T00:00"), ("apply",)),
            Phase(
                utc("2026-03-01T12:00"),
                ("run",),
                (*(drop(events, first, broken=1) for _ in range(3)), drop(clicks, first, broken=2)),
            ),
            Phase(utc("2026-03-02T00:10"), ("catalog", "lose", "repair", "catalog"), (drop(clicks, first, broken=1),)),
            Phase(
                utc("2026-03-02T12:00"),
                ("run", "discover", "stream", "redefine", "rebuild", "run"),
                (drop(events, first, second), drop(clicks, first, second)),
            ),
            Phase(utc("2026-03-02T13:00"), ("discover", "stream", "catalog", "erase parts"), (drop(events, first),)),
            Phase(utc("2026-03-03T01:00"), ("run", "prove"), (drop(events, second, broken=1), drop(clicks, second))),
        ),
        watched=(clicks,),
        rest=("run", "iceberg", "prove"),
        shown=(events, clicks),
        nested=(events, clicks),
        erased={events: 7},
        settings={"gc_max_fraction": 1.0, "quarantine_days": 36_500},
    )


def changes(seed: int) -> Life:
    """Changes of a join table, some too late, and records merged after their day.

    Some records are erased entirely, and some of them come again. A lost object of records is made again.
    """
    author = Author(seed)
    parts = "log.parts_changes"

    def drop(*starts: str, broken: int = 0, too_old: bool = False) -> Drop:
        return replace(author.drop(parts, *starts, broken=broken), folder="parts", too_old=too_old)

    return Life(
        tables={parts: "UTC"},
        files=(_JOIN,),
        phases=(
            Phase(utc("2026-03-01T00:00"), ("apply",)),
            Phase(utc("2026-03-01T12:00"), ("run",), (drop("2026-03-01T11:30", broken=1), drop("2026-03-01T11:40"))),
            Phase(
                utc("2026-03-02T12:00"), ("run",), (drop("2026-03-02T11:30"), drop("2026-03-01T11:00", too_old=True))
            ),
            Phase(
                utc("2026-03-03T01:00"), ("run", "lose records", "rebuild records", "run"), (drop("2026-03-02T23:30"),)
            ),
            Phase(utc("2026-03-03T01:30"), ("discover", "stream", "erase records"), (drop("2026-03-02T23:45"),)),
            Phase(utc("2026-03-03T01:40"), ("run", "prove"), (drop("2026-03-02T23:50"),)),
            Phase(utc("2026-03-03T06:00"), ("run",)),
        ),
        watched=(parts,),
        rest=("run", "prove"),
        erased={parts: 7},
        settings={"gc_max_fraction": 1.0, "quarantine_days": 36_500},
    )


LIVES: Mapping[str, Callable[[int], Life]] = {
    life.__name__: life
    for life in (
        days,
        messages,
        damage,
        losses,
        garbage,
        shown,
        rebuilt,
        streams,
        shared,
        grouped,
        retention,
        archived,
        names,
        columns,
        flipped,
        linked,
        erasure,
        parts,
        changes,
    )
}


def phase_reached(progress: Path) -> int:
    """Returns the player's phase by its records."""
    return int(progress.read_text()) if progress.exists() else 0


def play(name: str, seed: int, staging: str, progress: str, until: int | None = None) -> None:
    """Plays a life from the reached phase to the last, or to the one before `until`."""
    life, written = LIVES[name](seed), Path(progress)
    context = build_context(load_settings())
    context.settings.tables_dir.mkdir(exist_ok=True)
    for number, text in enumerate(life.files):
        (context.settings.tables_dir / f"{number}.yaml").write_text(text)
    for number, phase in enumerate(life.phases[:until]):
        if number >= phase_reached(written):
            _play_phase(context, phase, Path(staging))
            _note(written, number + 1)


def recover(name: str, seed: int, staging: str, progress: str) -> None:
    """Plays the rest of a life and two more runs. Fails if anything is then wrong or unfinished."""
    play(name, seed, staging, progress)
    life, context = LIVES[name](seed), build_context(load_settings())
    known = [drop.key for drop in life.drops if drop.vanishes]
    for phase in life.rests:
        turns = _play_phase(context, phase, Path(staging))
        errors = (*turns[-1].errors, *lasting_errors(context, turns))
        assert not [error for error in errors if not any(key in error for key in known)], errors
    again = run_once(context, now=phase.now)
    assert not again.changed, f"one more run, and it changes something: {again}"
    published = _iceberg(context, phase.now)
    assert not published.changed, f"one more publication, and it changes something: {published}"
    assert published.errors == (), published.errors


def _play_phase(context: StageContext, phase: Phase, staging: Path) -> tuple[CycleReport, ...]:
    for drop in phase.drops:
        put(staging, drop, phase.now)
        for url in context.settings.sqs_queue_urls:
            _tell(context, url, drop)
    turns: tuple[CycleReport, ...] = ()
    for step in phase.steps:
        turns = do(context, step, phase.now) or turns
    return turns


def do(context: StageContext, step: str, now: datetime) -> tuple[CycleReport, ...]:
    """Does one step; the turns of a whole run, of other steps none."""
    return _STEPS[step](context, now) or ()


def put(staging: Path, drop: Drop, now: datetime) -> None:
    """Writes an object completely, as if at that instant. An existing one stays."""
    path = staging / drop.key
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = staging.parent / f"{path.name}.new"
    aside.write_bytes(drop.body())
    os.utime(aside, (now.timestamp(), now.timestamp()))
    aside.rename(path)


def _tell(context: StageContext, url: str, drop: Drop) -> None:
    client = boto3.client("sqs", endpoint_url=context.settings.sqs_endpoint, region_name="us-east-1")
    client.send_message(QueueUrl=url, MessageBody=a_body(a_record(drop.key, size=len(drop.body()))))


def _note(progress: Path, phase: int) -> None:
    aside = progress.with_suffix(".new")
    aside.write_text(str(phase))
    aside.rename(progress)


def _run(context: StageContext, now: datetime) -> tuple[CycleReport, ...]:
    return run_until_idle(context, clock=lambda: now)


def _apply(context: StageContext, now: datetime) -> None:
    run_apply(context, context.settings.tables_dir, now, accept_failing_reads=True)


def _widen(context: StageContext, now: datetime) -> None:
    """The number in log.events becomes a wider one, while no reader fails."""
    for path in context.settings.tables_dir.glob("*.yaml"):
        path.write_text(path.read_text().replace("name: number, type: integer", "name: number, type: bigint"))
    run_apply(context, context.settings.tables_dir, now)


def _merge_all(context: StageContext, now: datetime) -> None:
    run_merge(context, now=now, ignore_schedule=True)


def _iceberg(context: StageContext, now: datetime) -> IcebergReport:
    return run_iceberg(context, now=now, ignore_pace=True, wait_seconds=takeover_seconds(context))


def _withdraw(context: StageContext, now: datetime) -> None:
    """The table file of log.clicks names no Iceberg any more."""
    for path in context.settings.tables_dir.glob("*.yaml"):
        if "table: clicks" in (text := path.read_text()):
            path.write_text(text.replace("iceberg: true\n", ""))
    _apply(context, now)


def _move(context: StageContext, now: datetime, *, stopped: bool = False) -> None:
    """Lets the stream `extra` feed log.events, and reads or stops the table's own stream."""
    for path in context.settings.tables_dir.glob("*.yaml"):
        text = path.read_text().replace(_EXTRA, "").replace(", enabled: false}", "}")
        if "table: events" in text:
            text = text.replace("streams:\n", f"streams:\n{_EXTRA}")
            text = text.replace('/events/"}', '/events/", enabled: false}') if stopped else text
        path.write_text(text)
    _apply(context, now)


def _stop(context: StageContext, now: datetime) -> None:
    _move(context, now, stopped=True)


def _rename(context: StageContext, now: datetime) -> None:
    """Renames log.visits to log.tours in its file."""
    for path in context.settings.tables_dir.glob("*.yaml"):
        text = path.read_text().replace("table: visits\n", "table: tours\nwas: log.visits\ngrace_days: 0\n")
        path.write_text(text)
    _apply(context, now)


def _drop(context: StageContext, now: datetime) -> None:
    """The table log.clicks is retired, and dropped as if the grace and then the reader lease were over."""
    aside = context.settings.tables_dir.parent / "retired"
    aside.mkdir(exist_ok=True)
    for path in context.settings.tables_dir.glob("*.yaml"):
        if "table: clicks" in (text := path.read_text()):
            (aside / path.name).write_text(re.sub("streams:\n.*\n", "retired: true\n", text))
            path.unlink()
    if "log.clicks" in {str(table.name) for table in context.choose_with_dropped(None) if not table.dropped}:
        run_apply(context, aside, now)
    _drop_whole(context, "log.clicks", max(now, datetime.now(timezone.utc)) + timedelta(days=60))


def _drop_unread(context: StageContext, now: datetime) -> None:
    """Creates the table log.unread, and drops it while an unread object waits."""
    aside = context.settings.tables_dir.parent / "unread"
    aside.mkdir(exist_ok=True)
    (aside / "unread.yaml").write_text(a_table("log.unread"))
    if "log.unread" not in {str(table.name) for table in context.choose_with_dropped(None)}:
        run_apply(context, aside, now)
        context.stores.put("staging", "unread/1.gz", gzip.compress(b"", mtime=0))
        run_discover(context, now=now, names=["log.unread"])
    _drop_whole(context, "log.unread", max(now, datetime.now(timezone.utc)))


def _drop_whole(context: StageContext, name: str, now: datetime) -> None:
    for _ in range(2):
        report = run_drop(context, name, confirm=name, now=now)
        if report.errors:
            raise TerminalError("; ".join(report.errors))
    if not all(status.is_over for status in report.drops):
        raise TerminalError(f"it is not over: {report}")


def _drop_column(context: StageContext, now: datetime, *, instead: str = "") -> None:
    """Removes the column from the file of log.events, or replaces it by another one of this name."""
    for path in context.settings.tables_dir.glob("*.yaml"):
        lines = path.read_text().splitlines(keepends=True)
        kept = "".join(line for line in lines if not re.search("{name: (said|told),", line))
        path.write_text(kept.replace("merge:", f"{instead}merge:"))
    _apply(context, now)


def _take_name(context: StageContext, now: datetime) -> None:
    _drop_column(context, now, instead='  - {name: said, type: integer, value: "1"}\n')


def _rename_column(context: StageContext, now: datetime) -> None:
    """Renames the column, and widens its type."""
    _drop_column(context, now, instead='  - {name: told, type: bigint, value: "1", was: said}\n')


def _link(context: StageContext, now: datetime) -> None:
    """Adds symlinks to the file of log.visits, and removes them from log.clicks."""
    for path in context.settings.tables_dir.glob("*.yaml"):
        text = path.read_text()
        if "table: visits" in text:
            path.write_text(text.replace(_LINKED, "") + _LINKED)
        if "table: clicks" in text:
            path.write_text(text.replace(_LINKED, ""))
    _apply(context, now)


def _adopt(context: StageContext, now: datetime) -> None:
    """The table file of log.visits says Iceberg, and the older objects are rewritten."""
    for path in context.settings.tables_dir.glob("*.yaml"):
        if "table: visits" in (text := path.read_text()):
            path.write_text(text.replace(_OLD_FORMAT, "iceberg: true\n"))
    _apply(context, now)
    report = run_adopt(context, "log.visits", since=None)
    if report.errors:
        raise TerminalError("; ".join(report.errors))


def _erase(context: StageContext, _now: datetime) -> None:
    """Runs the erasure of the life of this name."""
    for table, divisor in (("log.events", 7), ("log.clicks", 5)):
        _erase_ids(context, table, divisor)


def _erase_records(context: StageContext, _now: datetime) -> None:
    """Runs the erasure of the life of join tables."""
    _erase_ids(context, "log.parts", 7)


def _erase_parts(context: StageContext, _now: datetime) -> None:
    """Runs the erasure of the life of nested tables: by a field that is null in some rows."""
    _erase_ids(context, "log.events", 7, column="account.id")


def _erase_ids(context: StageContext, table: str, divisor: int, *, column: str = "id") -> None:
    where = f"{column} % {divisor} = 0"
    report = run_erase(context, table, where, rows=plan_erasure(context, table, where).all_matching)
    if report.errors:
        raise TerminalError("; ".join(report.errors))


def _close_days_early(context: StageContext, now: datetime) -> None:
    """The open day of log.clicks holds rows that are erased, and nobody waits for its end."""
    report = close_open_days(context, ["log.clicks"], clock=lambda: now)
    if report.errors:
        raise TerminalError("; ".join(report.errors))


def _withdraw_erasure(context: StageContext, _now: datetime) -> None:
    """Records an erasure in the lake without PostgreSQL, as after a restore. A person withdraws it."""
    (table,) = context.choose_tables(["log.events"])
    record = ErasureRecord(datetime.now(timezone.utc), "f" * 64, table_folder(table.name))
    put_record(context.stores, context.lake, record, ["id"])
    withdraw_erasure(context, "log.events", record.digest)


def _prove(context: StageContext, _now: datetime) -> None:
    """As if the reader lease were over."""
    report = continue_erasures(context, now=datetime.now(timezone.utc) + timedelta(days=5), forced=True)
    if report.errors:
        raise TerminalError("; ".join(report.errors))


def _redefine(context: StageContext, now: datetime) -> None:
    """A column of log.events is computed otherwise from this instant on."""
    for path in context.settings.tables_dir.glob("*.yaml"):
        if "table: events" in (text := path.read_text()):
            column = f"  - {{name: made, type: string, value: \"'{now:%d %H:%M}'\"}}\nmerge:"
            path.write_text(re.sub(r"(  - \{name: made.*\n)?merge:", column, text))
    _apply(context, now)


def _rebuild(context: StageContext, now: datetime) -> None:
    """The first day of log.events."""
    report = run_rebuild(context, "log.events", day=date(2026, 3, 1), now=now)
    if report.errors:
        raise TerminalError("; ".join(report.errors))


def _stream_events(context: StageContext, now: datetime) -> None:
    """Has one table of the prefix read its objects, and the others not."""
    run_stream(context, now=now, names=["log.events"])


def _reroute(context: StageContext, now: datetime) -> None:
    """Views move from log.clicks to log.events."""
    for path in context.settings.tables_dir.glob("*.yaml"):
        path.write_text(path.read_text().replace("in: [event]", "in: [event, view]"))
    _apply(context, now)


def _rebuild_group(context: StageContext, now: datetime) -> None:
    """Divides the first day by the new routes."""
    for table in ("log.events", "log.clicks"):
        report = run_rebuild(context, table, day=date(2026, 3, 1), now=now)
        if report.errors:
            raise TerminalError("; ".join(report.errors))


def _rebuild_records(context: StageContext, now: datetime) -> None:
    """Rebuilds all of log.parts after a loss."""
    report = run_rebuild(context, "log.parts", now=now)
    if report.errors:
        raise TerminalError("; ".join(report.errors))


def _replay(context: StageContext, now: datetime) -> None:
    """Ends the rejections in the file of log.clicks, and replays the refused lines."""
    for path in context.settings.tables_dir.glob("*.yaml"):
        if "table: clicks" in (text := path.read_text()):
            path.write_text(text.replace(_REFUSING, ""))
    _apply(context, now)
    report = run_replay(context, "log.clicks", now=now)
    if report.errors:
        raise TerminalError("; ".join(report.errors))


def _repair(context: StageContext, _now: datetime) -> None:
    run_repair(context)


def _gc(context: StageContext, _now: datetime) -> None:
    """Collects garbage with the clocks of the store and the database ahead, as if everything were days old."""
    report = run_gc(context, now=datetime.now(timezone.utc) + timedelta(days=5), names=["log.events"])
    if report.errors:
        raise TerminalError("; ".join(report.errors))


def _archive(context: StageContext, _now: datetime) -> None:
    """Deletes the staging objects of expired days, and lets enough time pass for the archive."""
    with context.database.begin() as connection:
        rows = connection.exec_driver_sql(
            "SELECT o.object_key FROM prism_staging_objects o JOIN prism_small_objects USING (prism_staging_object_id) "
            "JOIN prism_partitions USING (prism_partition_id) GROUP BY o.prism_staging_object_id "
            "HAVING bool_and(expire_time IS NOT NULL)"
        )
        keys = list(rows.scalars())
    context.stores.delete("staging", keys)
    for _ in range(2):  # the bytes go first
        report = run_gc(context, now=datetime.now(timezone.utc) + timedelta(days=500))
        if report.errors:
            raise TerminalError("; ".join(report.errors))


def _wait(_context: StageContext, _now: datetime) -> None:
    """Waits until messages received but not deleted come again."""
    time.sleep(HIDDEN_SECONDS + 0.1)


def _reencode(context: StageContext, _now: datetime) -> None:
    """Writes all small objects as another version of the encoder would have, and their lengths with them."""
    for staging_id, key in _small_objects(context):
        body = io.BytesIO()
        table = read_parquet(context.stores.get("lake", key))
        pq.write_table(table, body, compression="none", use_dictionary=False)
        context.stores.put("lake", key, body.getvalue())
        with context.database.begin() as connection:
            connection.exec_driver_sql(
                f"UPDATE prism_small_objects SET content_length = {len(body.getvalue())} "
                f"WHERE prism_staging_object_id = {staging_id}"
            )


def _lose(context: StageContext, _now: datetime) -> None:
    context.stores.delete("lake", [key for _, key in _small_objects(context)][:2])


def _lose_records(context: StageContext, _now: datetime) -> None:
    """Deletes a published object of log.parts."""
    (table,) = context.choose_tables(["log.parts"])
    with context.database.begin() as connection:
        found = record_objects.load_current(connection, context.lake.keys(table), table.table_id)
    context.stores.delete("lake", [item.key for item in found if item.part is RecordPart.VISIBLE][:1])


def _vanish(context: StageContext, _now: datetime) -> None:
    """Removes the vanishing objects, recognised by the end of their names."""
    listed = list(context.stores.list("staging", ""))
    context.stores.delete("staging", [item.key for item in listed if item.key.endswith(VANISHING)])


def _stray(context: StageContext, _now: datetime) -> None:
    """Writes an object by a forgotten task; nobody will commit it."""
    (_, key), *_ = _small_objects(context)
    with context.database.begin() as connection:
        statement = "SELECT max(prism_staging_object_id) FROM prism_staging_objects WHERE state = 'failed'"
        given_up = connection.exec_driver_sql(statement).scalar_one()
    if given_up is not None:
        name = f"{key.rpartition('/')[0]}/prism-{given_up:019d}.parquet"
        context.stores.put("lake", name, context.stores.get("lake", key))


def _orphan(context: StageContext, _now: datetime) -> None:
    """A worker claims a batch, and is never heard of again."""
    start_batch(context, None)


def _orphan_merge(context: StageContext, now: datetime) -> None:
    """A worker claims a merge, and is never heard of again."""
    with context.database.begin() as connection:
        merge_jobs.claim_due(connection, now=now, limit=1, worker="nobody", ignore_schedule=True)


def _small_objects(context: StageContext) -> Iterator[tuple[int, str]]:
    """Returns the small objects of log.events, by staging object id."""
    for item in sorted(context.stores.list("lake", ""), key=lambda item: item.key):
        folder, _, name = item.key.rpartition("/")
        if ".log.events/live/" in folder and name.startswith("prism-") and name.endswith(".parquet"):
            yield int(name.removeprefix("prism-").removesuffix(".parquet")), item.key


_Step = Callable[[StageContext, datetime], "tuple[CycleReport, ...] | None"]


def _only(stage: Callable[..., object]) -> _Step:
    def step(context: StageContext, now: datetime) -> None:
        stage(context, now=now)

    return step


_STEPS: Mapping[str, _Step] = {
    "apply": _apply,
    "run": _run,
    "discover": _only(run_discover),
    "stream": _only(run_stream),
    "merge": _only(run_merge),
    "merge --all": _merge_all,
    "catalog": _only(run_catalog),
    "iceberg": _only(_iceberg),
    "withdraw": _withdraw,
    "move": _move,
    "rename": _rename,
    "drop": _drop,
    "drop unread": _drop_unread,
    "drop column": _drop_column,
    "take name": _take_name,
    "rename column": _rename_column,
    "widen": _widen,
    "link": _link,
    "stop": _stop,
    "resume": _move,
    "adopt": _adopt,
    "redefine": _redefine,
    "rebuild": _rebuild,
    "rebuild records": _rebuild_records,
    "stream events": _stream_events,
    "reroute": _reroute,
    "rebuild group": _rebuild_group,
    "replay": _replay,
    "repair": _repair,
    "erase": _erase,
    "erase records": _erase_records,
    "erase parts": _erase_parts,
    "withdraw erasure": _withdraw_erasure,
    "close days early": _close_days_early,
    "prove": _prove,
    "gc": _gc,
    "archive": _archive,
    "wait": _wait,
    "reencode": _reencode,
    "lose": _lose,
    "lose records": _lose_records,
    "vanish": _vanish,
    "stray": _stray,
    "orphan": _orphan,
    "orphan merge": _orphan_merge,
}
