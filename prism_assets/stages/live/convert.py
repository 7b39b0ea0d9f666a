"""One batch of a live worker: pending objects of one kind, on one engine."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from prism_assets.domain.errors import LeaseLost
from prism_assets.engine.child import SMALL_BYTES
from prism_assets.metadata.erasures import erasure_records
from prism_assets.metadata.intake import claims
from prism_assets.metadata.intake.claims import NO_SIZE, Sizes, Wanted
from prism_assets.stages.context import StageContext
from prism_assets.stages.erasure_records import without_held
from prism_assets.stages.stream.plan import StreamPlan, start_batch
from prism_assets.stages.stream.report import StreamReport
from prism_assets.stages.stream.run import run_batch

_SMALL = Sizes(most=SMALL_BYTES)
QUICK = Wanted(unsuspected=_SMALL, suspects=NO_SIZE)
"""Work of the loop: small objects, which end within a second."""
SLOW = Wanted(unsuspected=Sizes(least=SMALL_BYTES + 1))
"""Work of the slow lane: large objects, and all objects of dead batches."""
SMALL_SUSPECTS = Wanted(unsuspected=NO_SIZE, suspects=_SMALL)


@dataclass(frozen=True, kw_only=True)
class Converted:
    """The end of one batch."""

    report: StreamReport = field(default_factory=StreamReport)
    table_ids: Sequence[int] = ()
    """The tables that the batch could choose from."""
    errors: tuple[str, ...] = ()
    lost_batches: int = 0
    """1 for a batch that lost its lease."""


@dataclass(frozen=True, kw_only=True)
class Claimed:
    """A look at pending objects, and the batch that claimed some."""

    plan: StreamPlan | None = None
    table_ids: Sequence[int] = ()
    """The tables that the batch could choose from."""
    held: tuple[str, ...] = ()
    """A sentence on each table that this look found without one of its erasures."""


def sound_tables(context: StageContext, table_ids: Collection[int]) -> tuple[list[int], tuple[str, ...]]:
    """Returns the tables without a missing erasure, and a sentence on each other one. Lists the erasures of the lake.

    A restore of PostgreSQL may come at any time, so each batch compares. Tables in a drop are left out.
    """
    chosen = [table for table in context.choose_logs(None) if table.table_id in table_ids]
    sound, held = without_held(context, chosen, missing_only=True)
    return [table.table_id for table in sound], tuple(problem.reason for problem in held)


def start(context: StageContext, wanted: Wanted, table_ids: Collection[int]) -> Claimed:
    """Claims a batch of wanted objects if any is pending.

    Tables with a known missing erasure are left out first, so they cost no listing. Their objects wait for a person.
    """
    with context.database.begin() as connection:
        held = erasure_records.load_held(connection)
        free = [number for number in table_ids if not any(item.is_missing for item in held.get(number, ()))]
        if not free or not claims.has_pending(connection, free, wanted):
            return Claimed()
    sound, reasons = sound_tables(context, free)
    return Claimed(plan=start_batch(context, sound, wanted), table_ids=sound, held=reasons)


def finish(context: StageContext, plan: StreamPlan, table_ids: Sequence[int], now: datetime) -> Converted:
    """Converts and commits a claimed batch. If another worker took the batch, the result has the error."""
    try:
        return Converted(report=run_batch(context, plan, now), table_ids=table_ids)
    except LeaseLost as error:
        return Converted(errors=(str(error),), lost_batches=1, table_ids=table_ids)
