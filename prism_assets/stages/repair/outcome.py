"""The outcome of a repair for each partition, from the answers of the kernel."""

from __future__ import annotations

from collections.abc import Mapping

from prism_assets.domain.work import Failure
from prism_assets.domain.work.repair import RepairedObject, RepairResult
from prism_assets.stages.repair.plan import MISSING, RepairPlan, Suspect
from prism_assets.stages.repair.report import IrreparableObject, PartitionRepair

Results = Mapping[tuple[int, int, int], RepairResult]
"""Results by staging object id, generation and definition."""


def looked_at(plan: RepairPlan, suspect: Suspect, results: Results) -> RepairedObject | None:
    """Returns the result of a suspect's task, or None without one. One task covers all days of a staging object."""
    result = results.get(suspect.start)
    objects = result.objects if result else ()
    return next((item for item in objects if item.date == plan.partition.date), None)


def outcome_of(
    plan: RepairPlan, results: Results, *, dry_run: bool, is_committed: bool
) -> tuple[PartitionRepair, list[IrreparableObject]]:
    """The result for one partition, and its objects that are still damaged.

    Objects under new keys count as repaired only if their rewrite was committed: `is_committed`.
    """
    missing = damaged = repaired = rewritten = 0
    left = []
    for suspect in plan.suspects:
        found = looked_at(plan, suspect, results)
        fault = suspect.fault or (found.fault if found else None)
        result = results.get(suspect.start)
        if fault is None and found:
            continue
        missing += fault == MISSING
        damaged += fault not in (None, MISSING)
        if found and found.content_length is not None:
            has_new_key = found.key != suspect.key
            repaired += not dry_run and (is_committed or not has_new_key)
            rewritten += is_committed and has_new_key
        elif result and result.failure:
            left.append(_irreparable(plan, suspect, fault, result.failure))
    entry = PartitionRepair(
        table=str(plan.table.name),
        table_id=plan.table.table_id,
        date=plan.partition.date,
        checked=plan.checked,
        missing=missing,
        damaged=damaged,
        repaired=repaired,
        rewritten=rewritten,
        strays=len(plan.strays),
    )
    return entry, left


def _irreparable(plan: RepairPlan, suspect: Suspect, fault: str | None, failure: Failure) -> IrreparableObject:
    what = f"{fault} and cannot be repaired" if fault else "cannot be looked at"
    return IrreparableObject(
        table=str(plan.table.name),
        date=plan.partition.date,
        key=suspect.key,
        reason=f"{what}: {failure.message}",
        transient=failure.transient,
    )
