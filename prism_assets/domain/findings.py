"""Findings: facts about tables that need attention, each with a remedy.

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
    """It ends by itself, in time."""
    PERSON = "person"
    """It stays until somebody acts."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One fact about a table, about one of its days, or about the whole installation where `table` is None."""

    kind: str
    """Stable for one kind of facts. docs/operate.md is an index by kind."""
    table: str | None
    date: datetime.date | None = None
    says: str
    """The fact, a sentence without full stop."""
    remedy: str = ""
    """The action of a person, or the next event. A second sentence."""
    acts: Acts = Acts.PERSON
    since: datetime.datetime | None = None
    count: int = 1
    """Number of objects, lines or days."""
    invariant: str | None = None
    """The broken invariant of the protocol, for example I4."""
    ends_runs: bool = True
    """Whether commands name the finding at their end. The usual course of a day and advice are left out."""

    @property
    def needs_a_person(self) -> bool:
        """Whether it stays until a person acts. Advice stays, too, and needs nobody."""
        return self.acts is Acts.PERSON and self.ends_runs

    @property
    def text(self) -> str:
        """The fact and the remedy."""
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
