"""What a life consists of: objects that arrive, phases, and what readers must see at the end."""

from __future__ import annotations

import gzip
import itertools
import json
import random
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from prism_assets_tests import nested
from prism_assets_tests.builders import utc

BROKEN = b"broken\n"
VANISHING = "-vanishes.gz"


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
