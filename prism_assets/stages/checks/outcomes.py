"""Checks, and their outcomes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from prism_assets.domain.tables.assets import Asset, assets_of
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.stages.checks.request import CheckRequest
from prism_assets.stages.context import StageContext

SHOWN = 5
"""Number of parts in a sentence. Further parts are counted."""

Figures = Mapping[str, int | float]


@dataclass(frozen=True, kw_only=True)
class CheckOutcome:
    """The outcome of one check of one table: a sentence with numbers, and the remedy of a failure."""

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
    """A passed check."""
    return CheckOutcome(table=str(table.name), check=check, passed=True, sentence=sentence, figures=figures or {})


def failed(table: TableDefinition, check: str, sentence: str, figures: Figures) -> CheckOutcome:
    """A failed check."""
    return CheckOutcome(table=str(table.name), check=check, passed=False, sentence=sentence, figures=figures)


@dataclass(frozen=True, kw_only=True)
class Check:
    """One check of every table of an asset. A failed blocking check stops its run."""

    name: str
    """Stable: Dagster keeps one status a name and asset."""
    asset: Asset
    about: str
    evaluate: Callable[[StageContext, CheckRequest], list[CheckOutcome]]
    is_error: bool = False
    """Whether a failure is an error in Dagster, and not a warning."""
    blocking: bool = False
    asks_catalog: bool = False
    """The check costs a call per table. A publication has just read the same facts."""
    of_topics: bool = False
    """Whether only tables that read topics of Kafka have the check."""

    def is_of(self, table: TableDefinition) -> bool:
        """Whether a table has the check: its asset, and for checks of topics a topic."""
        return self.asset in assets_of(table) and (table.reads_topics or not self.of_topics)
