"""table_checks: runs the checks of all tables by itself: some fail because nothing happens, and then no run comes.

It reports without a run: Dagster notes each check of a run before and after, which takes minutes for many tables.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone

from dagster import AssetCheckEvaluation, SensorEvaluationContext, SensorResult, SkipReason

from prism_assets.defs.checks.evaluate import Selection, evaluate
from prism_assets.defs.checks.specs import kinds_of
from prism_assets.defs.keys import Stage, asset_key
from prism_assets.defs.location import Location
from prism_assets.stages.checks import CATALOG_AGREES, CheckOutcome
from prism_assets.stages.context import StageContext

_CATALOG_TABLES = 50
_REPORTS = 100


@dataclass(frozen=True)
class Reported:
    """What Dagster was told: all checks that were ever reported, and those that failed; names are `table check`.

    `after` is the table behind which the catalog is asked next.
    """

    known: frozenset[str] = frozenset()
    failed: frozenset[str] = frozenset()
    after: str = ""

    @classmethod
    def read(cls, cursor: str | None) -> Reported:
        """From a cursor."""
        if not cursor:
            return cls()
        document = json.loads(cursor)
        return cls(frozenset(document["known"]), frozenset(document["failed"]), document["after"])

    def write(self) -> str:
        """As a cursor."""
        return json.dumps({"known": sorted(self.known), "failed": sorted(self.failed), "after": self.after})


def table_checks(stages: StageContext, context: SensorEvaluationContext, location: Location) -> SensorResult:
    """Runs the checks of all tables, and reports those that fail, that pass again, and that nobody reported yet."""
    reported = Reported.read(context.cursor)
    names = sorted({str(table.name) for table in stages.choose_tables(None)} & set(location.names()))
    asked = _next_tables(names, reported.after)
    outcomes = _evaluate(stages, location, names, asked)
    due = [item for item in outcomes if _is_due(item[1], reported)]
    told = due[:_REPORTS]
    failing = sum(not outcome.passed for _, outcome in outcomes)
    reason = (
        f"{len(outcomes)} checks of {len(names)} tables were run, {failing} of them fail; "
        f"{len(told)} reported, {len(due) - len(told)} left for the next tick"
    )
    return SensorResult(
        asset_events=[_evaluation(stage, outcome) for stage, outcome in told],
        skip_reason=SkipReason(reason),
        cursor=_advance(reported, [outcome for _, outcome in told], asked).write(),
    )


def _next_tables(names: Sequence[str], after: str) -> list[str]:
    """The tables that the catalog is asked for in this tick: that is a call each, so they take turns."""
    turn = [*(name for name in names if name > after), *(name for name in names if name <= after)]
    return turn[:_CATALOG_TABLES]


def _evaluate(
    stages: StageContext, location: Location, names: Collection[str], asked: Collection[str]
) -> list[tuple[Stage, CheckOutcome]]:
    """Failed checks first: they must be told though there is more to tell than a tick may take."""
    now, limits = datetime.now(timezone.utc), location.limits()
    found: list[tuple[Stage, CheckOutcome]] = []
    for stage in Stage:
        chosen = Selection.all_of(stage, names, without={CATALOG_AGREES})
        found += [(stage, outcome) for outcome in evaluate(stages, chosen, limits, now)]
    catalog = Selection(Stage.CATALOG, frozenset((name, CATALOG_AGREES) for name in asked))
    found += [(Stage.CATALOG, outcome) for outcome in evaluate(stages, catalog, limits, now)]
    return sorted(found, key=lambda item: item[1].passed)


def _name(outcome: CheckOutcome) -> str:
    return f"{outcome.table} {outcome.check}"


def _is_due(outcome: CheckOutcome, reported: Reported) -> bool:
    return not outcome.passed or _name(outcome) in reported.failed or _name(outcome) not in reported.known


def _advance(reported: Reported, told: Collection[CheckOutcome], asked: Sequence[str]) -> Reported:
    failed = {_name(outcome) for outcome in told if not outcome.passed}
    passed = {_name(outcome) for outcome in told if outcome.passed}
    after = asked[-1] if asked else ""
    return Reported(reported.known | failed | passed, (reported.failed | failed) - passed, after)


def _evaluation(stage: Stage, outcome: CheckOutcome) -> AssetCheckEvaluation:
    kind = kinds_of(stage)[outcome.check]
    return AssetCheckEvaluation(
        asset_key=asset_key(outcome.table, stage.value),
        check_name=outcome.check,
        passed=outcome.passed,
        severity=kind.severity,
        description=outcome.sentence,
        blocking=kind.blocking,
        metadata=dict(outcome.figures),
    )
