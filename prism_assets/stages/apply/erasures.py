"""Keeps tables unchanged while PostgreSQL lacks one of their erasures after a restore."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from prism_assets.domain.erasures.records import HeldErasure
from prism_assets.stages.apply.plan import ApplyPlan, TablePlan
from prism_assets.stages.erasure_records import HeldTables


def with_missing_erasures(plan: ApplyPlan, held: HeldTables) -> ApplyPlan:
    """Returns the plan without the tables that lack an erasure, and with a problem for each of them that it would
    change.

    A table without a column of the erasure is changed, because the erasure cannot be repeated otherwise. A new table in
    the folder of a lost table is created, and then held like the others.
    """
    refused: dict[str, Sequence[HeldErasure]] = {}
    notices = []
    for planned in plan.tables:
        missing = held.get(planned.old.table_id, ()) if planned.old else ()
        if missing and planned.changes and _can_be_repeated(planned, missing):
            refused[str(planned.name)] = missing
        elif missing:
            notices += [f"{planned.name}: {item}" for item in missing]
    kept = tuple(planned for planned in plan.tables if str(planned.name) not in refused)
    problems = [f"{name}: it stays as it is: {item}" for name, missing in refused.items() for item in missing]
    return dataclasses.replace(
        plan, tables=kept, problems=(*plan.problems, *problems), notices=(*plan.notices, *notices)
    )


def _can_be_repeated(planned: TablePlan, missing: Sequence[HeldErasure]) -> bool:
    """Whether the table has all columns of one of its missing erasures."""
    assert planned.old is not None
    names = {column.name for column in planned.old.columns}
    return any(names.issuperset(item.columns) for item in missing)
