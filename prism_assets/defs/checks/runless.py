"""Results of checks on the assets of whole tables, reported without a run's plan.

Such an event belongs to no run, so pruning never removes it. A run therefore reports changes only.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from dagster import AssetCheckEvaluation, AssetCheckKey, DagsterInstance

from prism_assets.defs.checks.specs import severity_of
from prism_assets.defs.keys import table_key
from prism_assets.stages.checks.outcomes import CheckOutcome
from prism_assets.stages.checks.run import CHECKS


def evaluation_of(outcome: CheckOutcome) -> AssetCheckEvaluation:
    """Returns the event of an outcome."""
    check = CHECKS[outcome.check]
    return AssetCheckEvaluation(
        asset_key=table_key(outcome.table),
        check_name=outcome.check,
        passed=outcome.passed,
        severity=severity_of(check),
        description=outcome.sentence,
        metadata=dict(outcome.figures),
    )


def report_changes(instance: DagsterInstance, outcomes: Collection[CheckOutcome]) -> list[CheckOutcome]:
    """Reports checks that fail or pass again since Dagster's last result. Returns them."""
    last = {(item.table, item.check): item.passed for item in last_outcomes(instance, list(map(_name, outcomes)))}
    changed = [item for item in outcomes if item.passed is not last.get(_name(item), True)]
    for item in changed:
        instance.report_runless_asset_event(evaluation_of(item))
    return changed


def last_outcomes(instance: DagsterInstance, names: Sequence[tuple[str, str]]) -> list[CheckOutcome]:
    """Returns Dagster's last results of checks, by table and name. Leaves out checks without any."""
    if not names:
        return []
    keys = {AssetCheckKey(table_key(table), check): (table, check) for table, check in names}
    found = instance.event_log_storage.get_latest_asset_check_execution_by_key(list(keys))
    return [
        CheckOutcome(table=table, check=check, passed=evaluation.passed, sentence=evaluation.description or "")
        for key, (table, check) in keys.items()
        if key in found and (evaluation := found[key].evaluation)
    ]


def _name(outcome: CheckOutcome) -> tuple[str, str]:
    return outcome.table, outcome.check
