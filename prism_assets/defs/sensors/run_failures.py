"""run_failures: alerts people about failed runs, in one message per tick, and each cause at most once an hour.

It needs neither the platform's PostgreSQL nor its settings, because it must work when those are wrong.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone

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

from prism_assets.alerts.message import FailedRun, redact, write_alert
from prism_assets.alerts.senders import LogSender, Sender, make_sender
from prism_assets.defs.keys import DAILY_JOBS, DAY_TAG, FAILED_TABLES_TAG, PARTITION_TAG, part_of
from prism_assets.defs.sensors.failure_position import Position, cause_of
from prism_assets.defs.sensors.in_flight import is_ours, tables_of
from prism_assets.domain.errors import AlertNotSent, SettingsError
from prism_assets.domain.text import counted
from prism_assets.known_secrets import secret_values
from prism_assets.settings import AlertSettings, load_alert_settings

_LIMIT = 500
_MOST_TRIES = 3


def run_failures(context: SensorEvaluationContext) -> SensorResult:
    """Sends one alert about the runs that failed since the last one, by PRISM_ALERT: log, webhook or SNS."""
    now = datetime.now(timezone.utc)
    position = Position.read(context.cursor, now)
    records = _records(context.instance, position)
    count = sum(is_ours(record.dagster_run) for record in records)
    if not count and not any(cause.is_due(now) for cause in position.causes.values()):
        return _result("no run failed since the last tick", position.behind(records))
    settings, sender = open_sender(context)
    failed = _by_cause(context.instance, records, settings)
    due_alerts, told = position.behind(records).due_alerts(failed, now)
    sentence = f"{counted(count, 'run')} failed" if count else "no run failed since the last tick"
    if not due_alerts.new and not due_alerts.again:
        quiet = "; their causes were told within the last hour" if count else ""
        return _result(f"{sentence}{quiet}", told)
    alert = write_alert(due_alerts.runs, due_alerts.again)
    try:
        sender.send(alert)
    except AlertNotSent as error:
        context.log.error(f"{error}\n{alert.text}")
        if position.tries + 1 < _MOST_TRIES:
            return _result(
                f"{sentence}; {error}; the next tick tries again", replace(position, tries=position.tries + 1)
            )
        return _result(f"{sentence}; {error}; given up, they are in the log of this tick", position.behind(records))
    return _result(f"{sentence}; told by {sender.name}", told)


def _records(instance: DagsterInstance, position: Position) -> list[RunRecord]:
    """Returns failed runs of any origin after the position. A shared instance has runs of others, and the position
    passes them.
    """
    filters = RunsFilter(statuses=[DagsterRunStatus.FAILURE], updated_after=position.since)
    most = _LIMIT + len(position.seen)
    found = instance.get_run_records(filters=filters, limit=most, order_by="update_timestamp", ascending=True)
    return [record for record in found if record.dagster_run.run_id not in position.seen]


def _by_cause(
    instance: DagsterInstance, records: Sequence[RunRecord], settings: AlertSettings
) -> Mapping[str, Sequence[FailedRun]]:
    """Returns our runs by cause, latest first, because the first of many often share a cause. Secrets are removed."""
    secrets = secret_values()
    found: dict[str, list[FailedRun]] = defaultdict(list)
    for record in reversed(records):
        if is_ours(record.dagster_run):
            run = _describe(instance, record.dagster_run, settings, secrets)
            found[cause_of(run)].append(run)
    return found


def open_sender(context: SensorEvaluationContext) -> tuple[AlertSettings, Sender]:
    """Returns the sender of the settings, or the log if they are wrong."""
    try:
        settings = load_alert_settings()
    except SettingsError as error:
        context.log.error(f"alerts go to the log: {error}")
        return AlertSettings.model_construct(), LogSender(context.log.error)
    return settings, make_sender(settings.alert.get_secret_value(), context.log.error, settings.sns_endpoint)


def _describe(
    instance: DagsterInstance, run: DagsterRun, settings: AlertSettings, secrets: Collection[str]
) -> FailedRun:
    told = run.tags.get(FAILED_TABLES_TAG)
    return FailedRun(
        run_id=run.run_id,
        work=_work(run),
        tables=tuple(told.split(",") if told else sorted(tables_of(run))),
        day=run.tags.get(PARTITION_TAG) or run.tags.get(DAY_TAG),
        error=redact(_first_error(instance, run.run_id), secrets),
        link=f"{settings.dagster_url}/runs/{run.run_id}" if settings.dagster_url else None,
    )


def _work(run: DagsterRun) -> str:
    if run.job_name in DAILY_JOBS:
        return DAILY_JOBS[run.job_name]
    parts = sorted({part_of(key) for key in run.asset_selection or ()})
    return " and ".join(parts) or "checks"


def _first_error(instance: DagsterInstance, run_id: str) -> str:
    """Returns the first sentence of the first error. A heading keeps its next line."""
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
