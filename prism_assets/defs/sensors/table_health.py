"""table_health: reports the health of each table on the table's own asset.

A report is an event without a run, and pruning keeps such events for ever. Therefore the sensor reports a table when
its health or the state of a day changes, and otherwise once an hour if its rows changed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone

from dagster import AssetCheckEvaluation, AssetMaterialization, SensorEvaluationContext, SensorResult, SkipReason

from prism_assets.defs.health import HEALTHY, Health, read_health
from prism_assets.defs.keys import table_key
from prism_assets.defs.location import Location
from prism_assets.defs.sensors.turns import groups_after
from prism_assets.domain.text import counted
from prism_assets.stages.context import StageContext
from prism_assets.stages.deadlines import Deadline

_TABLES = 50
"""Most tables of a tick."""
_GROUP = 5
"""Tables of one read."""
_ENOUGH_SECONDS = 1.0
"""A tick begins no further group after this time, because ticks of all sensors share a process."""
_PACE = timedelta(hours=1)
"""Time between two reports while only rows change."""


@dataclass(frozen=True)
class _Report:
    """The last report of one table."""

    time: datetime
    signal: str
    mark: str

    @classmethod
    def of(cls, health: Health, now: datetime) -> _Report:
        """Returns a report of the current health."""
        return cls(now, _digest(health.signal), _digest(health.mark))

    def is_due(self, health: Health, now: datetime) -> bool:
        """Whether a new report is due. A report from the future came from a wrong clock."""
        current = _Report.of(health, now)
        if current.signal != self.signal:
            return True
        return current.mark != self.mark and not timedelta(0) <= now - self.time < _PACE


@dataclass(frozen=True)
class _Cursor:
    """The state of the sensor."""

    reports: Mapping[str, _Report]
    """The last report of each table."""
    after: str = ""
    """The table read last."""

    @classmethod
    def read(cls, cursor: str | None) -> _Cursor:
        """Reads a cursor. One of another form counts as empty, so everything is reported again."""
        try:
            document = json.loads(cursor or "{}")
            reports = {
                name: _Report(datetime.fromisoformat(time), signal, mark)
                for name, (time, signal, mark) in document["reports"].items()
            }
            return cls(reports, document["after"])
        except (ValueError, TypeError, KeyError, AttributeError):
            return cls({})

    def write(self) -> str:
        """Returns the cursor."""
        reports = {name: [item.time.isoformat(), item.signal, item.mark] for name, item in self.reports.items()}
        return json.dumps({"reports": reports, "after": self.after})


def table_health(
    stages: StageContext, context: SensorEvaluationContext, location: Location, deadline: Deadline
) -> SensorResult:
    """Reports the health of each table: days, rows, checks and findings."""
    now = datetime.now(timezone.utc)
    names = sorted({str(table.name) for table in stages.choose_tables(None)} & set(location.names()))
    before = _Cursor.read(context.cursor)
    cursor = replace(before, reports={name: item for name, item in before.reports.items() if name in names})
    seen: list[Health] = []
    enough = Deadline.after(_ENOUGH_SECONDS)
    for group in groups_after(names, cursor.after, _TABLES, _GROUP):
        if deadline.is_over or (seen and enough.is_over):
            break
        seen += read_health(stages, context.instance, location, group, now)
        cursor = replace(cursor, after=group[-1])
    due = [item for item in seen if item.table not in cursor.reports or cursor.reports[item.table].is_due(item, now)]
    reports = {**cursor.reports, **{item.table: _Report.of(item, now) for item in due}}
    return SensorResult(
        asset_events=[event for item in due for event in _events(item)],
        skip_reason=SkipReason(_sentence(seen, due, len(names))),
        cursor=replace(cursor, reports=reports).write(),
    )


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _events(health: Health) -> Iterator[AssetMaterialization | AssetCheckEvaluation]:
    key = table_key(health.table)
    yield AssetMaterialization(key, metadata=health.facts, description=health.sentence)
    yield AssetCheckEvaluation(
        asset_key=key, check_name=HEALTHY, passed=health.is_healthy, description=health.sentence, metadata={}
    )


def _sentence(seen: Sequence[Health], due: Collection[Health], tables: int) -> str:
    sick = [item.table for item in seen if not item.is_healthy]
    named = f": {', '.join(sick[:5])}{' …' if sick[5:] else ''}" if sick else ""
    return (
        f"{len(seen)} of {counted(tables, 'table')} looked at, {counted(len(sick), 'needs', 'need')} somebody{named}; "
        f"{len(due)} reported"
    )
