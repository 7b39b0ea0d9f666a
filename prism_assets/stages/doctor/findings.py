"""What the doctor says: one value for the terminal, for JSON and for tests."""

from __future__ import annotations

import datetime
from dataclasses import dataclass

from prism_assets.domain.problems import Problem


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Something that must not be: which invariant it breaks, where, the facts, and what to do.

    `name` is the same for the same kind of damage, whatever the facts. Without `table` it concerns all of them.
    """

    invariant: str
    name: str
    table: str | None
    date: datetime.date | None
    facts: str
    advice: str

    def __str__(self) -> str:
        where = " ".join(str(part) for part in (self.table or "all tables", self.date) if part)
        return f"{self.invariant} {where}: {self.facts}. {self.advice}"


@dataclass(frozen=True, kw_only=True)
class DoctorReport:
    """All findings, and what could not be looked at. `published_design` if only PostgreSQL was, for that reason."""

    findings: tuple[Finding, ...]
    unseen: tuple[Problem, ...]
    tables: int
    partitions: int
    objects: int
    deep: bool
    published_design: bool
    seconds: float

    @property
    def is_clean(self) -> bool:
        """Whether everything was looked at and nothing was found."""
        return not self.findings and not self.unseen
