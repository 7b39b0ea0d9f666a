"""What a check says about a table, and the words it says it with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from prism_assets.domain.tables import TableDefinition
from prism_assets.stages.checks.request import CheckRequest
from prism_assets.stages.context import StageContext
from prism_assets.stages.findings.subject import Asset

SHOWN = 5
"""How many parts a sentence has before it only counts the rest."""

Figures = Mapping[str, int | float]


@dataclass(frozen=True, kw_only=True)
class CheckOutcome:
    """What one check says about one table: a sentence with numbers, and what to do where it failed."""

    table: str
    check: str
    passed: bool
    sentence: str
    figures: Figures = field(default_factory=dict)


def few(parts: Sequence[str]) -> str:
    """The first of many parts of a sentence, and how many more there are."""
    more = [f"and {len(parts) - SHOWN} more"] if len(parts) > SHOWN else []
    return "; ".join([*parts[:SHOWN], *more])


def hours(span: timedelta) -> float:
    """A span in hours."""
    return span.total_seconds() / 3_600


def mb(size: int) -> str:
    """Bytes in megabytes, for people."""
    return f"{size / 1_000_000:.1f} MB"


def passed(table: TableDefinition, check: str, sentence: str, figures: Figures | None = None) -> CheckOutcome:
    """The outcome of a check that a table has passed."""
    return CheckOutcome(table=str(table.name), check=check, passed=True, sentence=sentence, figures=figures or {})


def failed(table: TableDefinition, check: str, sentence: str, figures: Figures) -> CheckOutcome:
    """The outcome of a check that a table has failed."""
    return CheckOutcome(table=str(table.name), check=check, passed=False, sentence=sentence, figures=figures)


@dataclass(frozen=True, kw_only=True)
class Check:
    """One check that every table of an asset has. A failed blocking one keeps what follows in its run from going on."""

    name: str
    """Stable: Dagster keeps one status a name and asset."""
    asset: Asset
    about: str
    evaluate: Callable[[StageContext, CheckRequest], list[CheckOutcome]]
    is_error: bool = False
    """Whether a failure is an error in Dagster, and not a warning."""
    blocking: bool = False
    asks_catalog: bool = False
    """Whether it costs a call a table. Whoever publishes has just read back the same."""
