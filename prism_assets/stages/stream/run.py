"""Stream: a batch turns pending staging objects of many tables into small Parquet objects, readable at once."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import datetime

from prism_assets.domain.errors import EngineUnavailable, InvariantBroken, LeaseLost, PrismError
from prism_assets.domain.problems import Problem
from prism_assets.domain.text import counted
from prism_assets.domain.work.convert import ConvertResult
from prism_assets.failpoints import failpoint
from prism_assets.metadata.intake import attempts, batches, staging_objects
from prism_assets.stages.bisect import check_engine, run_bisected
from prism_assets.stages.context import StageContext
from prism_assets.stages.drift import evolve_tables
from prism_assets.stages.erasure_records import without_held
from prism_assets.stages.heartbeats import Heartbeat
from prism_assets.stages.stream.commit import (
    charge_batch,
    charge_lost_engine,
    commit_batch,
    reclaim_expired,
    release_batch,
)
from prism_assets.stages.stream.plan import StreamPlan, start_batch
from prism_assets.stages.stream.report import StreamReport
from prism_assets.stages.stream.uploads import remove_abandoned

_DISCARDED_AT_ONCE = 10_000


def run_stream(
    context: StageContext,
    *,
    now: datetime,
    names: Collection[str] | None = None,
    max_batches: int | None = None,
) -> StreamReport:
    """Runs batches until nothing is pending, or until `max_batches` are done. A repetition changes nothing."""
    report = StreamReport()
    for done in stream_batches(context, now=now, names=names):
        report += done
        if max_batches is not None and report.batches >= max_batches:
            break
    return report


def stream_batches(
    context: StageContext, *, now: datetime, names: Collection[str] | None = None
) -> Iterator[StreamReport]:
    """Runs batches until nothing is pending. Yields the report of each committed step."""
    context.check_lake()
    context.stores.check_bucket(context.lake.bucket)
    table_ids, held = sound_ids(context, names)
    reclaimed = reclaim_expired(context)
    yield replace(reclaimed, problems=(*reclaimed.problems, *held))
    yield retry_given_up(context, table_ids)
    yield discard_new(context, table_ids)
    objects = rows = 0
    while (plan := start_batch(context, table_ids)) is not None:
        try:
            report = run_batch(context, plan, now)
        except LeaseLost as error:
            context.progress(f"stream: {error}")
            continue
        objects, rows = objects + report.objects, rows + report.rows_out
        context.progress(f"stream: {counted(objects, 'object')}, {counted(rows, 'row')}")
        yield replace(report, problems=(*report.problems, *remove_abandoned(context, table_ids)))
        table_ids, _ = sound_ids(context, names)
    yield StreamReport(problems=evolve_tables(context, table_ids, now))


def sound_ids(
    context: StageContext, names: Collection[str] | None
) -> tuple[Collection[int] | None, tuple[Problem, ...]]:
    """Returns the tables to convert for (None for all), and problems of tables with erasures missing in PostgreSQL."""
    tables, held = without_held(context, context.choose_logs(names), missing_only=True)
    return (None if names is None and not held else [table.table_id for table in tables]), held


def retry_given_up(context: StageContext, table_ids: Collection[int] | None) -> StreamReport:
    """Restarts given-up objects that may be readable now, and removes their old uploads."""
    problems = remove_abandoned(context, table_ids)
    with context.database.begin() as connection:
        return StreamReport(restarted=attempts.restart_due(connection, table_ids), problems=problems)


def discard_new(context: StageContext, table_ids: Collection[int] | None) -> StreamReport:
    """Counts new objects of discarded streams as done. Reads none of them; after a death the next run does the rest."""
    discarded = 0
    while True:
        with context.database.begin() as connection:
            found = staging_objects.discard(connection, table_ids, _DISCARDED_AT_ONCE)
            failpoint("stream.in_discard")
        discarded += found
        if found < _DISCARDED_AT_ONCE:
            return StreamReport(discarded=discarded)


def run_batch(context: StageContext, plan: StreamPlan, now: datetime) -> StreamReport:
    """Converts and commits one batch. The cause of an early end decides on its objects.

    Contradictions and errors of this code may come from one object, so the batch is divided as after a death, and the
    other objects go on. The end of an engine that worked just before counts the same. All other causes are faults of
    the surroundings, and charged to nobody.
    """
    started, was_at_work = time.monotonic(), False
    results: list[ConvertResult] = []
    beat = Heartbeat(
        context.database,
        context.settings.lease_seconds,
        lambda connection: batches.heartbeat(connection, plan.batch),
    )
    try:
        with beat:
            if plan.holds_suspects:
                probe_engine(context, plan)
                was_at_work = True
            for result in run_bisected(context.engine, plan.tasks, plan.definitions):
                results.append(result)
                was_at_work = True
            failpoint("stream.after_convert")
            report = commit_batch(context, plan, results, now)
    except LeaseLost:
        raise
    except InvariantBroken as error:
        context.progress(f"stream: {error}")
        return charge_batch(context, plan, str(error), proven=True)
    except EngineUnavailable as error:
        with suppress(PrismError):
            if len(results) == len(plan.tasks):
                release_batch(context, plan)  # every object was answered, so none is to blame
            else:
                charge_lost_engine(context, plan, str(error), proven=was_at_work)
        raise
    except BaseException as error:
        # If this fails too, the lease of the batch runs out by itself.
        with suppress(PrismError):
            if isinstance(error, PrismError) or not isinstance(error, Exception):
                release_batch(context, plan)
            else:
                charge_batch(context, plan, f"{type(error).__name__} ended the batch", proven=was_at_work)
        raise
    failpoint("stream.after_commit")
    return replace(report, seconds=time.monotonic() - started)


def probe_engine(context: StageContext, plan: StreamPlan) -> None:
    """Runs a harmless task before objects of a dead batch, and notes its success.

    A death afterwards is then the fault of these objects, not of the engine.
    """
    check_engine(context.engine)
    with context.database.begin() as connection:
        batches.note_probe(connection, plan.batch)
    failpoint("stream.after_probe")
