"""Tables that need no new run, because one is queued or running for them, or because their last runs failed recently.

A queued run counts for work of its own priority or a lower one; more urgent work overtakes it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone

from dagster import DagsterInstance, DagsterRun, DagsterRunStatus, RunRecord, RunsFilter

from prism_assets.defs.keys import DAILY_JOBS, FAILED_TABLES_TAG, PRIORITY_TAG, STAGE_TAG, Stage, table_of

_QUEUED = (DagsterRunStatus.QUEUED, DagsterRunStatus.NOT_STARTED)
_RUNNING = (DagsterRunStatus.STARTING, DagsterRunStatus.STARTED, DagsterRunStatus.CANCELING)
_BELIEVED = timedelta(minutes=15)
"""A longer running run no longer counts, because its worker may have died with its machine. If it lives, the leases in
PostgreSQL keep both runs apart.
"""
_JUST_BEGUN = timedelta(seconds=60)
"""Most runs end within this time. New work meanwhile waits for the next run."""
_MEMORY = timedelta(hours=1)
_FIRST_PAUSE = 15.0
_LONGEST_PAUSE = 600.0
_LIMIT = 200


@dataclass(frozen=True)
class InFlight:
    """Runs of one stage requested by sensors, by the tables they work for."""

    waiting: Mapping[str, int] = field(default_factory=dict)
    """The highest priority of each table's queued runs."""
    just_begun: Mapping[str, int] = field(default_factory=dict)
    """The highest priority of each table's recently started runs."""
    running: frozenset[str] = frozenset()
    resting: frozenset[str] = frozenset()
    """Tables with failed runs within the last hour, during a pause that doubles with every failure."""

    def queued(self, priority: int) -> set[str]:
        """Returns tables with a queued run of this priority or higher."""
        return _at_least_as_urgent(self.waiting, priority)

    def waiting_or_just_begun(self, priority: int) -> set[str]:
        """Returns tables with a queued or recently started run of this priority or higher."""
        return self.queued(priority) | _at_least_as_urgent(self.just_begun, priority)

    def busy(self, priority: int) -> set[str]:
        """Returns tables with a running run, or with a queued one of this priority or higher."""
        return self.queued(priority) | self.running


def find_in_flight(instance: DagsterInstance, stage: Stage) -> InFlight:
    """Asks Dagster once each for queued, running and failed runs."""
    now = datetime.now(timezone.utc)
    queued = _records(instance, stage, _QUEUED, None)
    running = _records(instance, stage, _RUNNING, now - _BELIEVED)
    just_begun = [record for record in running if now - record.update_timestamp < _JUST_BEGUN]
    failed = _records(instance, stage, (DagsterRunStatus.FAILURE,), now - _MEMORY)
    return InFlight(
        waiting=_priorities(queued, stage),
        just_begun=_priorities(just_begun, stage),
        running=frozenset(table for record in running for table in _selected(record.dagster_run)),
        resting=frozenset(_resting(failed, now)),
    )


def _at_least_as_urgent(priorities: Mapping[str, int], priority: int) -> set[str]:
    return {table for table, highest in priorities.items() if highest >= priority}


def _priorities(records: Iterable[RunRecord], stage: Stage) -> dict[str, int]:
    """Returns the highest priority of each table's runs."""
    found: dict[str, int] = {}
    for record in records:
        for table in _selected(record.dagster_run):
            found[table] = max(found.get(table, -1), _priority(record.dagster_run, stage))
    return found


def _resting(failed: Iterable[RunRecord], now: datetime) -> set[str]:
    counts: Counter[str] = Counter()
    last: dict[str, datetime] = {}
    for record in failed:
        for table in _blamed(record.dagster_run):
            counts[table] += 1
            last[table] = max(last.get(table, record.update_timestamp), record.update_timestamp)
    return {table for table, count in counts.items() if now < last[table] + _pause(count)}


def tables_of(run: DagsterRun) -> set[str]:
    """Returns the tables a run works for or checks."""
    checked = {table_of(key.asset_key) for key in run.asset_check_selection or ()}
    return _selected(run) | checked


def is_ours(run: DagsterRun) -> bool:
    """Whether a run belongs to these definitions: it works for tables, or belongs to a daily job."""
    return run.job_name in DAILY_JOBS or works_for_tables(run)


def works_for_tables(run: DagsterRun) -> bool:
    """Whether a run has assets or checks, all of them under prism/."""
    keys = [*(run.asset_selection or ()), *(key.asset_key for key in run.asset_check_selection or ())]
    return bool(keys) and all(key.path[0] == "prism" for key in keys)


def _priority(run: DagsterRun, stage: Stage) -> int:
    """Returns the requested priority. Somebody may have replaced it in the UI by something else than a number."""
    try:
        return int(run.tags.get(PRIORITY_TAG, stage.priority))
    except ValueError:
        return stage.priority


def _pause(failed: int) -> timedelta:
    return timedelta(seconds=min(_FIRST_PAUSE * 2 ** min(failed - 1, 10), _LONGEST_PAUSE))


def _records(
    instance: DagsterInstance, stage: Stage, statuses: Iterable[DagsterRunStatus], since: datetime | None
) -> list[RunRecord]:
    filters = RunsFilter(tags={STAGE_TAG: stage.value}, statuses=list(statuses), updated_after=since)
    return list(instance.get_run_records(filters=filters, limit=_LIMIT))


def _blamed(run: DagsterRun) -> set[str]:
    """Returns the failed tables of a run, or all of its tables if it died before it could name them."""
    return set(run.tags[FAILED_TABLES_TAG].split(",")) if FAILED_TABLES_TAG in run.tags else _selected(run)


def _selected(run: DagsterRun) -> set[str]:
    return {table_of(key) for key in run.asset_selection or ()}
