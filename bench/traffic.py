"""Traffic like that of services: objects of log rows, dropped into the staging bucket at an even rate."""

from __future__ import annotations

import argparse
import gzip
import json
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

from prism_assets.objectstore.stores import Stores

BUCKET = "prism-staging"
SCHEMA = "soak"

_TABLE = """\
schema: {schema}
table: {table}
description: rows of the soak test
owner: team:bench
streams:
  - {{name: {table}, url: "s3://{bucket}/{table}/"}}
partition: {{column: time, timezone: {zone}}}
columns:
  - {{name: time, type: timestamp, required: true}}
  - {{name: id, type: bigint}}
  - {{name: session, type: string, length: 64}}
  - {{name: path, type: string, length: 2000}}
  - {{name: status, type: integer}}
  - {{name: elapsed, type: double}}
  - {{name: ua, type: string, length: 500}}
merge: {{interval: {interval}}}
"""
_AGENTS = [f"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.{n} Chrome/{100 + n}.0 Safari/537.{n}" for n in range(40)]


@dataclass(frozen=True)
class Traffic:
    """The amount of traffic: each of `tables` gets `rate` objects a minute, of `lines` rows each, for `minutes`."""

    tables: int
    rate: float
    minutes: float
    lines: int
    commit_seconds: int = 0
    """Above 0, the tables are Iceberg tables, too, with a commit at most so often."""

    @property
    def objects(self) -> int:
        """All objects of all tables."""
        return round(self.tables * self.rate * self.minutes)

    def table(self, number: int) -> str:
        """Returns the table of object `number`. Tables take turns, so that each one's arrivals are even."""
        return f"t{number % self.tables:03}"

    def expected(self) -> dict[str, list[int]]:
        """Returns the numbers of each table's objects."""
        numbers: dict[str, list[int]] = {f"t{table:03}": [] for table in range(self.tables)}
        for number in range(self.objects):
            numbers[self.table(number)].append(number)
        return numbers


def add_options(parser: argparse.ArgumentParser, minutes: float) -> None:
    """Adds the options of traffic, with a default for its minutes."""
    parser.add_argument("--tables", type=int, default=100)
    parser.add_argument("--rate", type=float, default=2.0, help="objects a minute for each table")
    parser.add_argument("--minutes", type=float, default=minutes)
    parser.add_argument("--lines", type=int, default=200, help="rows of each object")
    parser.add_argument("--drain-seconds", type=float, default=180.0, help="time to become readable after the last")


def write_tables(folder: Path, traffic: Traffic, merge_seconds: int) -> None:
    """Writes the table files, with a time zone in which it is about noon, so that no day ends meanwhile."""
    folder.mkdir()
    zone = noon_zone(datetime.now(timezone.utc))
    for number in range(traffic.tables):
        name = traffic.table(number)
        text = _TABLE.format(schema=SCHEMA, table=name, bucket=BUCKET, zone=zone, interval=merge_seconds)
        iceberg = f"iceberg: {{commit_seconds: {traffic.commit_seconds}}}\n" if traffic.commit_seconds else ""
        (folder / f"{name}.yaml").write_text(text + iceberg)


def noon_zone(now: datetime) -> str:
    """Returns a time zone in which it is between 11 and 12 o'clock."""
    ahead = 11 - now.astimezone(timezone.utc).hour
    return "UTC" if ahead == 0 else f"Etc/GMT{-ahead:+d}"  # POSIX reverses the sign in these names


def object_key(traffic: Traffic, number: int) -> str:
    """Returns the key of one object. It contains the object's number."""
    return f"{traffic.table(number)}/{number:08}.json.gz"


def drop(stores: Stores, traffic: Traffic) -> Iterator[tuple[int, float]]:
    """Puts all objects, each at its time. Yields number and time of arrival, the end of its upload."""
    begun = time.time()
    pause = traffic.minutes * 60 / max(1, traffic.objects)
    for number in range(traffic.objects):
        time.sleep(max(0.0, begun + number * pause - time.time()))
        stores.put(BUCKET, object_key(traffic, number), body(number, traffic.lines))
        yield number, time.time()


def body(number: int, lines: int) -> bytes:
    """Returns one object: gzip of JSON Lines of this second, with ids from `number * lines` on."""
    rng = random.Random(number)
    start = datetime.now(timezone.utc).replace(microsecond=0) - timedelta(seconds=30)
    rows = [
        {
            "time": (start + timedelta(milliseconds=line * 30_000 // lines)).isoformat(timespec="milliseconds"),
            "id": number * lines + line,
            "session": f"{rng.getrandbits(64):016x}",
            "path": f"/recipes/{rng.randrange(5000)}/steps",
            "status": rng.choice((200, 200, 200, 301, 404, 500)),
            "elapsed": round(rng.expovariate(5), 6),
            "ua": rng.choice(_AGENTS),
        }
        for line in range(lines)
    ]
    return gzip.compress(b"".join(json.dumps(row).encode() + b"\n" for row in rows), 6, mtime=0)
