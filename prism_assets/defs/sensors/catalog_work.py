"""catalog_work: requests catalog for tables with partitions to publish, close or switch, or with a new definition."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping
from datetime import date, datetime, timezone

from dagster import SensorEvaluationContext, SensorResult, SkipReason

from prism_assets.defs.keys import Stage
from prism_assets.defs.location import Location
from prism_assets.defs.sensors.requests import Demand, answer
from prism_assets.domain.tables import TableDefinition
from prism_assets.stages.catalog_work import PUBLISH, CatalogWork, find_catalog_work
from prism_assets.stages.context import StageContext
from prism_assets.stages.delayed import DelayedRows, find_delayed


def catalog_work(stages: StageContext, context: SensorEvaluationContext, location: Location) -> SensorResult:
    """Requests catalog for the tables with partitions to publish, close or switch, or with a new definition."""
    now = datetime.now(timezone.utc)
    tables = stages.choose_tables(None)
    work = _without_delayed(find_catalog_work(stages, now=now), find_delayed(stages), now)
    defined = _versions(context.cursor)
    days: dict[str, set[date]] = {name: {day} for name, day in _undefined(tables, defined, now).items()}
    for item in work:
        days.setdefault(item.table, set()).add(item.date)
    reply = answer(Demand(Stage.CATALOG, days), location, context.instance)
    reason = "; ".join(filter(None, [_sentence(work, len(tables)), reply.rest]))
    return SensorResult(
        run_requests=list(reply.requests),
        skip_reason=None if reply.requests else SkipReason(reason),
        cursor=_cursor(tables, defined, reply.asked),
    )


def _without_delayed(
    work: Collection[CatalogWork], delayed: Collection[DelayedRows], now: datetime
) -> list[CatalogWork]:
    """Leaves out the days that delayed_data asks for, unless nobody has seen to them for some time."""
    theirs = {(item.table, item.date) for item in delayed if item.is_fresh(now)}
    return [item for item in work if item.step != PUBLISH or (item.table, item.date) not in theirs]


def _undefined(tables: Collection[TableDefinition], defined: Mapping[str, int], now: datetime) -> dict[str, date]:
    """Tables whose definition in force no run was requested for yet; they are shown without waiting for rows."""
    return {str(table.name): table.today(now) for table in tables if defined.get(str(table.name)) != table.version}


def _versions(cursor: str | None) -> dict[str, int]:
    return dict(json.loads(cursor)) if cursor else {}


def _cursor(tables: Collection[TableDefinition], defined: Mapping[str, int], asked: Collection[str]) -> str:
    """The version of each table that a run was requested for: a run defines what it finds in force."""
    versions = {str(table.name): table.version for table in tables if str(table.name) in asked}
    kept = {str(table.name): defined[str(table.name)] for table in tables if str(table.name) in defined}
    return json.dumps({**kept, **versions}, sort_keys=True)


def _sentence(work: Collection[CatalogWork], tables: int) -> str:
    steps = Counter(item.step for item in work)
    parts = ", ".join(f"{steps[step]} to {step}" for step in ("publish", "close", "switch"))
    return f"partitions of {tables} tables: {parts}"
