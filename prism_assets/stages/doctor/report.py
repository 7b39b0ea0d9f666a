"""The report of doctor: one value for terminal, JSON and tests."""

from __future__ import annotations

from dataclasses import dataclass

from prism_assets.domain.findings import Finding
from prism_assets.domain.problems import Problem


@dataclass(frozen=True, kw_only=True)
class DoctorReport:
    """All findings, and everything that could not be examined."""

    findings: tuple[Finding, ...]
    unseen: tuple[Problem, ...]
    """Places that could not be examined, with the reason."""
    tables: int
    partitions: int
    objects: int
    deep: bool
    notes: tuple[str, ...] = ()
    """No findings: tables of the next release, skipped offsets by decision of a person, and brokers that this machine
    has no connection to.
    """
    published_design: bool
    """The schema is the one of the published design, so only PostgreSQL was examined."""
    seconds: float

    @property
    def is_clean(self) -> bool:
        """Whether everything was examined and nothing was found."""
        return not self.findings and not self.unseen
