"""The check of erasures."""

from __future__ import annotations

from collections.abc import Sequence

from prism_assets.domain.erasure_records import HeldErasure
from prism_assets.domain.tables import TableDefinition
from prism_assets.domain.words import counted
from prism_assets.stages.checks.outcomes import CheckOutcome, Figures, failed, few, passed
from prism_assets.stages.checks.request import CheckRequest
from prism_assets.stages.context import StageContext
from prism_assets.stages.erase.report import ErasureStatus, read_erasures
from prism_assets.stages.erasure_records import load_held_names

ERASURES_PROVED = "erasures_proved"


def check_erasures_proved(context: StageContext, request: CheckRequest) -> list[CheckOutcome]:
    """Whether all erasures are proved."""
    found = read_erasures(context, request.tables)
    held = load_held_names(context)
    return [
        _judge_erasures(table, [item for item in found if item.table == str(table.name)], held.get(str(table.name), ()))
        for table in request.tables
    ]


def _judge_erasures(
    table: TableDefinition, erasures: Sequence[ErasureStatus], held: Sequence[HeldErasure]
) -> CheckOutcome:
    figures: Figures
    if held:
        figures = {"erasures": len(erasures), "missing": len(held)}
        return failed(table, ERASURES_PROVED, few([str(item) for item in held]), figures)
    waiting = [item for item in erasures if item.proof is None]
    figures = {"erasures": len(erasures), "not proved": len(waiting)}
    if not waiting:
        return passed(table, ERASURES_PROVED, f"{counted(len(erasures), 'erasure')}, all proved", figures)
    waiting.sort(key=lambda item: not item.for_a_person)
    advice = (
        "What should be proved by now may wait for ever: see to what holds it"
        if waiting[0].for_a_person
        else "They go on by themselves; `prism erase --continue` does at once what can be done"
    )
    return failed(
        table,
        ERASURES_PROVED,
        f"{len(waiting)} of {counted(len(erasures), 'erasure is', 'erasures are')} not proved: "
        f"{few([item.wait for item in waiting])}. {advice}",
        figures,
    )
