"""Findings: the things about tables that somebody has to know, each with what to do.

Status, doctor, the end of a run, checks and sensors render findings. No screen has sentences of its own.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum


class Acts(str, Enum):
    """Who ends a finding."""

    RUN = "run"
    """The next run of a stage."""
    TIME = "time"
    """It ends by itself when its time has come."""
    PERSON = "person"
    """It stays until somebody acts."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One fact about a table, about one of its days, or about the whole installation where `table` is None."""

    kind: str
    """Stable for one kind of facts. docs/operate.md is an index by it."""
    table: str | None
    date: datetime.date | None = None
    says: str
    """The fact, a sentence without its full stop."""
    remedy: str = ""
    """What to do, or what happens by itself; a sentence of its own."""
    acts: Acts = Acts.PERSON
    since: datetime.datetime | None = None
    count: int = 1
    """Objects, lines or days that it is about."""
    invariant: str | None = None
    """The invariant of the protocol that it breaks, such as I4."""
    ends_runs: bool = True
    """Whether commands name it at their end. The usual course of a day and advice about contents are left out there."""

    @property
    def text(self) -> str:
        """The fact and what to do."""
        return f"{self.says}. {self.remedy}" if self.remedy else self.says

    def __str__(self) -> str:
        where = " ".join(str(part) for part in (self.table or "all tables", self.date) if part)
        return f"{where}: {self.text}"


def count_kinds(findings: Collection[Finding]) -> dict[str, int]:
    """Counts by kind."""
    counts: dict[str, int] = {}
    for item in findings:
        counts[item.kind] = counts.get(item.kind, 0) + item.count
    return counts
