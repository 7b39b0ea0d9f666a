"""Requests reported separately by a page and a server, late and in any order: the demo's join table."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from prism_assets.domain.errors import WrongUse
from prism_assets.domain.text import counted
from prism_assets.reading.lake_reader import LakeReader
from prism_assets.reading.query import run_query

RECORDS = "log.request"
LOG = "log.request_changes"
_FRONT, _BACK = "request_front", "request_back"
_SEEN = (
    "SELECT count(*), count(DISTINCT request_id), count(page), count(status), coalesce(sum(version), 0) "
    f"FROM {RECORDS} WHERE request_id LIKE '{{run}}-%'"
)

Line = dict[str, Any]


@dataclass(frozen=True)
class Joined:
    """Counts over records."""

    requests: int = 0
    pages: int = 0
    """Records with a page."""
    answers: int = 0
    """Records with a server's answer."""
    versions: int = 0
    """The sum of the answers' versions."""


@dataclass
class RequestWriter:
    """Writes both sides of requests, and knows the records that must result.

    A page reports once. A server reports several versions of one answer, in any order, some only in a later act; the
    last version counts. Keys begin with `run`.
    """

    run: str
    rng: random.Random
    lines: int = 0
    _numbers: int = 0
    _pages: set[str] = field(default_factory=set)
    _versions: dict[str, int] = field(default_factory=dict)
    _held_back: list[Line] = field(default_factory=list)

    @property
    def known(self) -> Joined:
        """The counts readers must see for all lines returned so far."""
        return Joined(
            requests=len(self._pages | self._versions.keys()),
            pages=len(self._pages),
            answers=len(self._versions),
            versions=sum(self._versions.values()),
        )

    def objects(self, start: datetime, minutes: int, count: int, *, late: float) -> list[tuple[str, bytes]]:
        """Returns (key, gzip body) of an object for each side: `count` new requests, and answers held back earlier.

        Holds back the share `late` of the new answers until the next call.
        """
        pages, answers, self._held_back = [], self._held_back, []
        for _ in range(count):
            self._numbers += 1
            request, at = f"{self.run}-{self._numbers:06d}", start + self.rng.random() * timedelta(minutes=minutes)
            if self.rng.random() < 0.95:
                pages.append(self._page(request, at))
            (self._held_back if self.rng.random() < late else answers).extend(self._answers(request, at))
        self.rng.shuffle(answers)
        for line in pages:
            self._pages.add(line["request_id"])
        for line in answers:
            self._versions[line["request_id"]] = max(line["version"], self._versions.get(line["request_id"], 0))
        self.lines += len(pages) + len(answers)
        name = f"{start:%Y/%m/%d/%H%M%S}_{self.run}_{self._numbers:06d}.gz"
        return [(f"{side}/{name}", _zipped(lines)) for side, lines in ((_FRONT, pages), (_BACK, answers)) if lines]

    def _page(self, request: str, at: datetime) -> Line:
        page = self.rng.choice(("/home", "/search", "/cart", "/pay"))
        return {"request_id": request, "time": _text(at), "sent_at": _text(at + timedelta(seconds=1)), "page": page}

    def _answers(self, request: str, at: datetime) -> list[Line]:
        """Returns answers some seconds after the page. Some fall on the next day."""
        return [
            {
                "request_id": request,
                "time": _text(at + timedelta(seconds=self.rng.uniform(0.01, 20))),
                "version": version,
                "status": self.rng.choice((200, 200, 404, 500)),
                "elapsed": round(self.rng.expovariate(8), 5),
            }
            for version in range(1, self.rng.randrange(2, 5))
        ]


def _text(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds")


def _zipped(lines: Sequence[Line]) -> bytes:
    return gzip.compress(b"".join(json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in lines), 6)


def read_joined(reader: LakeReader, run: str) -> Joined:
    """Returns the counts readers see for the requests of a play. Raises WrongUse for a duplicate request."""
    try:
        rows, keys, pages, answers, versions = run_query(reader, _SEEN.format(run=run)).rows[0]
    except WrongUse:
        return Joined()
    if rows != keys:
        raise WrongUse(f"{RECORDS} shows {counted(rows, 'row')} of {keys} requests")
    return Joined(requests=int(rows), pages=int(pages), answers=int(answers), versions=int(versions))
