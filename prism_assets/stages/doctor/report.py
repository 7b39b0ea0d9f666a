"""What the doctor reports: one value for the terminal, for JSON and for tests."""

from __future__ import annotations

from dataclasses import dataclass

from prism_assets.domain.findings import Finding
from prism_assets.domain.problems import Problem


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
