"""Which tables need no new run: one is queued or running for them, or their last ones failed a moment ago."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timedelta, timezone

from dagster import DagsterInstance, DagsterRun, DagsterRunStatus, RunRecord, RunsFilter

from prism_assets.defs.keys import SICK_TAG, STAGE_TAG, Stage, table_of

_QUEUED = (DagsterRunStatus.QUEUED, DagsterRunStatus.NOT_STARTED)
_RUNNING = (DagsterRunStatus.STARTING, DagsterRunStatus.STARTED, DagsterRunStatus.CANCELING)
_BELIEVED = timedelta(minutes=15)
"""A run that has been running for longer counts no more: its worker may be gone with its machine. If it is alive, the
leases in PostgreSQL keep the two apart."""
_MEMORY = timedelta(hours=1)
_FIRST_PAUSE = 15.0
_LONGEST_PAUSE = 600.0
_LIMIT = 200


def queued_tables(instance: DagsterInstance, stage: Stage) -> set[str]:
    """Tables for which a sensor's run of this stage waits for its turn."""
    return _tables(_records(instance, stage, _QUEUED, None))


def busy_tables(instance: DagsterInstance, stage: Stage) -> set[str]:
    """Tables for which a sensor's run of this stage is queued or running."""
    running = _tables(_records(instance, stage, _RUNNING, datetime.now(timezone.utc) - _BELIEVED))
    return running | queued_tables(instance, stage)


def resting_tables(instance: DagsterInstance, stage: Stage) -> set[str]:
    """Tables whose runs failed within the last hour, for a pause that doubles with every failure."""
    now = datetime.now(timezone.utc)
    failed = _records(instance, stage, (DagsterRunStatus.FAILURE,), now - _MEMORY)
    counts: Counter[str] = Counter()
    last: dict[str, datetime] = {}
    for record in failed:
        for table in _blamed(record.dagster_run):
            counts[table] += 1
            last[table] = max(last.get(table, record.update_timestamp), record.update_timestamp)
    return {table for table, count in counts.items() if now < last[table] + _pause(count)}


def tables_of(run: DagsterRun) -> set[str]:
    """The tables that a run works for or checks."""
    checked = {table_of(key.asset_key) for key in run.asset_check_selection or ()}
    return _selected(run) | checked


def is_ours(run: DagsterRun) -> bool:
    """Whether a run belongs to these definitions: all that it makes or checks is under prism/."""
    keys = [*(run.asset_selection or ()), *(key.asset_key for key in run.asset_check_selection or ())]
    return bool(keys) and all(key.path[0] == "prism" for key in keys)


def _pause(failed: int) -> timedelta:
    return timedelta(seconds=min(_FIRST_PAUSE * 2 ** min(failed - 1, 10), _LONGEST_PAUSE))


def _records(
    instance: DagsterInstance, stage: Stage, statuses: Iterable[DagsterRunStatus], since: datetime | None
) -> list[RunRecord]:
    filters = RunsFilter(tags={STAGE_TAG: stage.value}, statuses=list(statuses), updated_after=since)
    return list(instance.get_run_records(filters=filters, limit=_LIMIT))


def _tables(records: Iterable[RunRecord]) -> set[str]:
    return {table for record in records for table in _selected(record.dagster_run)}


def _blamed(run: DagsterRun) -> set[str]:
    """The sick tables of a failed run, or all of them if it died before it could tell."""
    return set(run.tags[SICK_TAG].split(",")) if SICK_TAG in run.tags else _selected(run)


def _selected(run: DagsterRun) -> set[str]:
    return {table_of(key) for key in run.asset_selection or ()}
