"""Alerts on failed checks, and on findings that wait for a person. The sensor `table_checks` sends them.

One message a tick names new and ended problems, and repeats each lasting problem once a day.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from dagster import SensorEvaluationContext

from prism_assets.alerts.message import redact, write_attention
from prism_assets.defs.sensors.reported import Reported
from prism_assets.defs.sensors.run_failures import open_sender
from prism_assets.domain.errors import AlertNotSent, TransientError
from prism_assets.known_secrets import secret_values
from prism_assets.stages.checks.outcomes import CheckOutcome
from prism_assets.stages.context import StageContext
from prism_assets.stages.findings.registry import read_findings

_AGAIN = timedelta(days=1)
_MOST_KEYS = 1_000
"""Problems in the cursor. A message counts further problems, and names them after some of these have ended."""
_MORE = "further problems"


@dataclass(frozen=True)
class SentAlerts:
    """The alerts of a tick."""

    alerted: Mapping[str, datetime]
    """The time of the last message by problem, for the cursor."""
    sentence: str = ""
    """A part of the tick's sentence."""


def send_due(
    context: SensorEvaluationContext,
    stages: StageContext,
    reported: Reported,
    outcomes: Collection[CheckOutcome],
    tables: Collection[str],
    now: datetime,
) -> SentAlerts:
    """Sends one message about new, ended and lasting problems. After a failure the next tick sends the message."""
    before = reported.alerted
    try:
        present = {**_failed_checks(reported, outcomes), **_findings(stages, tables, now)}
    except TransientError as error:
        context.log.warning(f"findings were not read: {error}")
        return SentAlerts(before)
    new = sorted(key for key in present if key not in before)
    room = max(0, _MOST_KEYS - sum(key in present for key in before))
    if len(new) > room:
        present[_MORE] = f"{_MORE}: {len(new) - room:,}. `prism status` shows all"
        new = [*new[:room], *([] if _MORE in before else [_MORE])]
    again = [key for key, time in before.items() if key in present and not timedelta(0) <= now - time < _AGAIN]
    cleared = [key for key in before if key not in present]
    if not (new or again or cleared):
        return SentAlerts(before)
    secrets = secret_values()
    said = {key: redact(present[key], secrets) for key in (*new, *again)}
    alert = write_attention([said[key] for key in new], [said[key] for key in again], cleared)
    _, sender = open_sender(context)
    try:
        sender.send(alert)
    except AlertNotSent as error:
        context.log.error(f"{error}\n{alert.text}")
        return SentAlerts(before, f"; {error}; the next tick tries again")
    alerted = {key: time for key, time in before.items() if key in present} | dict.fromkeys((*new, *again), now)
    return SentAlerts(alerted, f"; told by {sender.name}: {alert.subject}")


def _failed_checks(reported: Reported, outcomes: Collection[CheckOutcome]) -> dict[str, str]:
    """Returns the failed checks with their sentences. Checks of former ticks have no sentence."""
    sentences = {(item.table, item.check): item.sentence for item in outcomes}
    return {
        f"{table}: check {check}": f"{table}: check {check}: {sentences.get((table, check), 'it fails')}"
        for table, check in reported.failed
    }


def _findings(stages: StageContext, tables: Collection[str], now: datetime) -> dict[str, str]:
    """Returns the findings for a person of these tables and of the whole lake, one for each table, day and kind."""
    found = read_findings(stages, None, now=now)
    return {
        " ".join(str(part) for part in (item.table or "all tables", item.date, item.kind) if part): str(item)
        for item in found
        if item.needs_a_person and (item.table is None or item.table in tables)
    }
