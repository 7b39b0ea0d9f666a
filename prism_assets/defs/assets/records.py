"""The asset `records`: folds changes of join tables into records, and merges settled records.

A fold serves all days of its tables. Merges work day by day.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import date, datetime, timezone

from prism_assets.defs.assets.figures import read_figures, table_ids, with_own_day
from prism_assets.defs.assets.outcome import Facts, Outcome, RunOrder
from prism_assets.defs.assets.rebuilds import rebuild_join_tables, record_facts
from prism_assets.defs.assets.reported_positions import read_positions
from prism_assets.defs.keys import Stage
from prism_assets.defs.pictures import sizes_picture
from prism_assets.domain.problems import Problem
from prism_assets.domain.records.join_delays import at_most
from prism_assets.stages.context import StageContext
from prism_assets.stages.fold.report import Fold
from prism_assets.stages.fold.run import run_fold
from prism_assets.stages.leases import takeover_seconds
from prism_assets.stages.merge.record_merge import merge_records
from prism_assets.stages.merge.report import MergedPartition, MergeReport
from prism_assets.stages.rebuild.report import RebuildReport


def make_records(context: StageContext, order: RunOrder) -> Outcome:
    """In a manual run, folds at once. For a sensor, folds what is due at each table's pace.

    A manual run whose configuration says so first rebuilds its tables.
    """
    ids = table_ids(context, order.tables)
    wait_seconds = 0.0 if order.by_sensor else takeover_seconds(context)
    now = datetime.now(timezone.utc)
    rebuilt, refused = rebuild_join_tables(context, order) if order.rebuilds else ({}, ())
    done = run_fold(context, now=now, names=order.tables, ignore_pace=not order.by_sensor, wait_seconds=wait_seconds)
    day = None if order.by_sensor else order.day
    merges = sum(
        merge_records(context, names=order.tables, day=day, wait_seconds=wait_seconds, retry=not order.by_sensor),
        MergeReport(),
    )
    facts = {**_rebuilt_days(rebuilt), **_facts_by_day(done.folds, merges.merged)}
    days = with_own_day(ids, order.day, facts)
    positions = read_positions(context, Stage.RECORDS, ids, days)
    figures = read_figures(context, ids, days)
    skipped = () if order.by_sensor else done.skipped
    return Outcome(
        touched={(ids[table], day): {**figures[ids[table], day], **own} for (table, day), own in facts.items()},
        own_day={name: {**figures[name, order.day], **record_facts(rebuilt.get(name))} for name in ids.values()},
        problems=(
            *refused,
            *done.problems,
            *merges.record_problems,
            *(Problem(table=item.table, reason=item.reason, transient=True) for item in skipped),
        ),
        positions=positions,
        # The check `records_wait` fails for these. Failing the run would pause the whole table, and everything else is
        # folded.
        warnings=tuple(map(str, (*done.faults, *merges.record_faults))),
    )


def _rebuilt_days(rebuilt: Mapping[str, RebuildReport]) -> dict[tuple[int, date], Facts]:
    done = [item for report in rebuilt.values() for item in report.records]
    return {(item.table_id, day): {"rows rewritten": item.rows_written} for item in done for day in item.days}


def _facts_by_day(folds: Sequence[Fold], merged: Sequence[MergedPartition]) -> dict[tuple[int, date], Facts]:
    """Returns facts of the last fold and the last merge, by table and day."""
    facts: dict[tuple[int, date], Facts] = {(fold.table_id, day): _facts(fold) for fold in folds for day in fold.days}
    for item in merged:
        place = (item.table_id, item.date)
        facts[place] = {**facts.get(place, {}), **_facts_of_merge(item)}
    return facts


def _facts_of_merge(item: MergedPartition) -> Facts:
    return {
        "settled rows merged": item.rows,
        "settled objects in": item.objects_in,
        "settled objects out": len(item.sizes),
        "bytes of settled objects out": sum(item.sizes),
        "plan of the merge": item.plan,
        **({"object sizes": sizes_picture(item.sizes_in, item.sizes)} if item.sizes else {}),
    }


def _facts(fold: Fold) -> Facts:
    """Returns facts of one fold over all days of its table."""
    done = fold.counts
    per_record = round(done.rows_written / done.records_changed, 2) if done.records_changed else 0.0
    return {
        "why": fold.reason,
        "fold": fold.fold_id,
        "changes in": done.changes_in,
        "changes folded": done.changes_folded,
        "changes that wait": fold.pending,
        "changes without sequence": done.changes_unsequenced,
        "records settled": done.records_settled,
        "rows written": done.rows_written,
        "bytes written": done.bytes_written,
        "rows written per change": round(done.rows_written / done.changes_folded, 2) if done.changes_folded else 0.0,
        "days changed": len(fold.days),
        "records changed": done.records_changed,
        "rows written per record changed": per_record,
        **_delays(fold),
        "seconds of the fold": round(fold.seconds, 2),
    }


def _delays(fold: Fold) -> Facts:
    """Returns quantiles of the delay between the first and the last part of complete records. Empty without such
    records.
    """
    shares = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
    found = {name: at_most(fold.join_delays, share) for name, share in shares.items()}
    return {
        f"join delay {name}: at most seconds": seconds
        for name, seconds in found.items()
        if seconds is not None and seconds < math.inf
    }
