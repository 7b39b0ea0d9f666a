"""run_failures: tells people about failed runs, all of one tick in one message.

It needs neither the platform's PostgreSQL nor its settings: it has to speak when those are what is wrong.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone

from dagster import (
    DagsterEventType,
    DagsterInstance,
    DagsterRun,
    DagsterRunStatus,
    RunRecord,
    RunsFilter,
    SensorEvaluationContext,
    SensorResult,
    SkipReason,
)

from prism_assets.alerts.message import FailedRun, shown_of, write_alert
from prism_assets.alerts.senders import LogSender, Sender, make_sender
from prism_assets.defs.keys import DAY_TAG, PARTITION_TAG, SICK_TAG
from prism_assets.defs.sensors.in_flight import is_ours, tables_of
from prism_assets.domain.errors import AlertNotSent, SettingsError
from prism_assets.settings import AlertSettings, load_alert_settings, secret_values

_LIMIT = 500
_OVERLAP = timedelta(seconds=60)
"""How far back is looked again: a run's record may become visible later than its time says."""
_MOST_TRIES = 3


@dataclass(frozen=True)
class Position:
    """How far failed runs were told: up to a time, and by id within the overlap; `tries` of the message due."""

    until: datetime
    told: Mapping[str, datetime] = field(default_factory=dict)
    tries: int = 0

    @classmethod
    def read(cls, cursor: str | None, now: datetime) -> Position:
        """From a cursor; without one, from now on: what failed before the sensor was there is not told."""
        if not cursor:
            return cls(now)
        document = json.loads(cursor)
        told = {run_id: datetime.fromisoformat(time) for run_id, time in document["told"].items()}
        return cls(datetime.fromisoformat(document["until"]), told, document["tries"])

    def write(self) -> str:
        """As a cursor."""
        told = {run_id: time.isoformat() for run_id, time in self.told.items()}
        return json.dumps({"until": self.until.isoformat(), "told": told, "tries": self.tries}, sort_keys=True)


def run_failures(context: SensorEvaluationContext) -> SensorResult:
    """Sends one alert about the runs that failed since the last one, by PRISM_ALERT: log, webhook or SNS."""
    now = datetime.now(timezone.utc)
    position = Position.read(context.cursor, now)
    failed = _failed(context.instance, position)
    if not failed:
        return _result("no run failed since the last tick", replace(position, tries=0))
    settings, sender = _sender(context)
    alert = write_alert(_named(context.instance, failed, settings), len(failed), secret_values())
    try:
        sender.send(alert)
    except AlertNotSent as error:
        context.log.error(f"{error}\n{alert.text}")
        if position.tries + 1 < _MOST_TRIES:
            reason = f"{len(failed)} runs failed; {error}; the next tick tries again"
            return _result(reason, replace(position, tries=position.tries + 1))
        reason = f"{len(failed)} runs failed; {error}; given up, they are in the log of this tick"
        return _result(reason, _behind(position, failed))
    return _result(f"{len(failed)} runs failed; told by {sender.name}", _behind(position, failed))


def _failed(instance: DagsterInstance, position: Position) -> list[RunRecord]:
    filters = RunsFilter(statuses=[DagsterRunStatus.FAILURE], updated_after=position.until - _OVERLAP)
    most = _LIMIT + len(position.told)
    records = instance.get_run_records(filters=filters, limit=most, order_by="update_timestamp", ascending=True)
    return [
        record for record in records if is_ours(record.dagster_run) and record.dagster_run.run_id not in position.told
    ]


def _behind(position: Position, failed: Sequence[RunRecord]) -> Position:
    """The position behind these runs; ids that the next look cannot meet again are forgotten."""
    until = max(position.until, *(record.update_timestamp for record in failed))
    told = {**position.told, **{record.dagster_run.run_id: record.update_timestamp for record in failed}}
    return Position(until, {run_id: time for run_id, time in told.items() if time >= until - _OVERLAP})


def _sender(context: SensorEvaluationContext) -> tuple[AlertSettings, Sender]:
    """The sender that the settings name; the log where they are wrong."""
    try:
        settings = load_alert_settings()
    except SettingsError as error:
        context.log.error(f"alerts go to the log: {error}")
        return AlertSettings.model_construct(), LogSender(context.log.error)
    return settings, make_sender(settings.alert.get_secret_value(), context.log.error, settings.sns_endpoint)


def _named(instance: DagsterInstance, failed: Sequence[RunRecord], settings: AlertSettings) -> list[FailedRun]:
    """The runs that the message names; the newest, as the first of many mostly fail of the same."""
    newest = list(reversed(failed))[: shown_of(len(failed))]
    return [_describe(instance, record.dagster_run, settings) for record in newest]


def _describe(instance: DagsterInstance, run: DagsterRun, settings: AlertSettings) -> FailedRun:
    sick = tuple(run.tags[SICK_TAG].split(",")) if SICK_TAG in run.tags else tuple(sorted(tables_of(run)))
    return FailedRun(
        run_id=run.run_id,
        work=_work(run),
        tables=sick,
        day=run.tags.get(PARTITION_TAG) or run.tags.get(DAY_TAG),
        error=_first_error(instance, run.run_id),
        link=f"{settings.dagster_url}/runs/{run.run_id}" if settings.dagster_url else None,
    )


def _work(run: DagsterRun) -> str:
    parts = sorted({key.path[-1] for key in run.asset_selection or ()})
    return " and ".join(parts) or "checks"


def _first_error(instance: DagsterInstance, run_id: str) -> str:
    """The first sentence of the first thing that went wrong; a heading is followed by what it heads."""
    kinds = {DagsterEventType.STEP_FAILURE, DagsterEventType.RUN_FAILURE}
    for record in instance.get_records_for_run(run_id, of_type=kinds, limit=1).records:
        event = record.event_log_entry.dagster_event
        if event is None:
            continue
        text = event.message or ""
        if event.is_step_failure:
            data = event.step_failure_data
            described = data.user_failure_data and data.user_failure_data.description
            text = described or (data.error.message if data.error else "") or text
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return " ".join(lines[: 2 if lines and lines[0].endswith(":") else 1]) or "it does not say why"
    return "it ended without a word; its process may have been killed"


def _result(reason: str, position: Position) -> SensorResult:
    return SensorResult(skip_reason=SkipReason(reason), cursor=position.write())
