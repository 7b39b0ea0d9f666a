"""Writes realistic log objects: in order, late, broken and sent twice. Keeps count of its output."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

_PATHS = [f"/{kind}/{number}" for kind in ("recipes", "users", "search", "articles") for number in range(400)]
_AGENTS = [f"Mozilla/5.0 (X11; Linux x86_64) Chrome/{100 + n}.0" for n in range(12)] + ["App/9.4 iOS/18.1"]
_ROUTES = ["/v1/recipes/{id}", "/v1/search", "/v1/users/{id}/bookmarks", "/v2/feed", "/v2/sessions"]
_BROKEN = [
    b'{"event_time": "2026-0',
    b"upstream connect error or disconnect/reset before headers",
    b'["an", "array"]',
    b'{"user_id": 7, "path": "/no-time-at-all"}',
    b'{"event_time": "last tuesday", "ts": "last tuesday"}',
    b"\xff\xfe\x00 not utf-8",
]


@dataclass
class Written:
    """Counts of the lines written to one table."""

    good: int = 0
    """Lines that must become rows."""
    broken: int = 0
    """Lines that must be quarantined."""
    number_sum: int = 0
    """The sum of the numbers in good lines."""
    objects: int = 0
    sent_twice: int = 0

    @property
    def lines(self) -> int:
        """All lines."""
        return self.good + self.broken


@dataclass
class LogWriter:
    """Makes objects of one table. Row numbers continue through all objects, and every row's id contains its number."""

    table: str
    rng: random.Random
    written: Written = field(default_factory=Written)
    _number: int = 0

    def objects(
        self, start: datetime, end: datetime, rows: int, per_object: int, *, broken: float = 0.001, region: bool = False
    ) -> Iterator[tuple[str, bytes]]:
        """Yields (name, gzip body) of objects whose rows are spread evenly over [start, end)."""
        step = (end - start) / max(rows, 1)
        for first in range(0, rows, per_object):
            lines = []
            for index in range(first, min(first + per_object, rows)):
                lines.append(self._line(start + step * index, region))
                if self.rng.random() < broken:
                    lines.append(self.rng.choice(_BROKEN))
                    self.written.broken += 1
            self.written.objects += 1
            when = start + step * first
            yield f"{when:%Y/%m/%d/%H%M%S}_{self.written.objects:06d}.gz", gzip.compress(b"\n".join(lines) + b"\n", 6)

    def _line(self, when: datetime, region: bool) -> bytes:
        self._number += 1
        self.written.good += 1
        self.written.number_sum += self._number
        when += timedelta(milliseconds=self.rng.randrange(1000))
        row = self._page_view(when) if self.table == "pv_log" else self._call(when, region)
        return json.dumps(row, separators=(",", ":")).encode()

    def _page_view(self, when: datetime) -> dict[str, Any]:
        rng = self.rng
        return {
            "event_time": when.isoformat(timespec="milliseconds"),
            "request_id": f"{self._number:012d}-{rng.getrandbits(64):016x}",
            "user_id": rng.randrange(1, 3_000_000),
            "session": f"{rng.getrandbits(64):016x}",
            "path": rng.choice(_PATHS),
            "status": rng.choice((200, 200, 200, 200, 301, 404, 500)),
            "elapsed": round(rng.expovariate(8), 5),
            "premium": rng.random() < 0.15,
            "ua": rng.choice(_AGENTS),
            "payload": {"ab": [rng.randrange(9), rng.randrange(9)], "ref": rng.choice(_PATHS)},
        }

    def _call(self, when: datetime, region: bool) -> dict[str, Any]:
        rng = self.rng
        row: dict[str, Any] = {
            "ts": int(when.timestamp() * 1000),
            "call_id": f"{self._number:012d}-{rng.getrandbits(64):016x}",
            "client": f"client-{rng.randrange(300)}",
            "method": rng.choice(("GET", "GET", "POST")),
            "route": rng.choice(_ROUTES),
            "status": rng.choice((200, 200, 200, 429, 500)),
            "bytes": rng.randrange(200, 90_000),
            "price": f"{rng.randrange(1, 90_000) / 10_000:.4f}",
        }
        return {**row, "region": rng.choice(("jp", "eu", "us"))} if region else row
