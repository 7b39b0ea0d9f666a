"""The asset `catalog`: moves partitions through their states and publishes them. One run serves all days of a table."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, timezone

from prism_assets.defs.assets.figures import read_figures, table_ids, with_own_day
from prism_assets.defs.assets.latency import latency_of_publication
from prism_assets.defs.assets.outcome import Facts, Outcome, RunOrder
from prism_assets.defs.assets.reported_positions import read_positions
from prism_assets.defs.assets.sample import read_sample_rows
from prism_assets.defs.keys import Stage
from prism_assets.domain.problems import Problem
from prism_assets.stages.catalog.report import CatalogReport, TableReport
from prism_assets.stages.catalog.run import run_catalog
from prism_assets.stages.context import StageContext
from prism_assets.stages.leases import takeover_seconds


def make_catalog(context: StageContext, order: RunOrder) -> Outcome:
    """Switches, closes, defines and publishes. The facts of each day name its steps."""
    ids = table_ids(context, order.tables)
    wait_seconds = 0.0 if order.by_sensor else takeover_seconds(context)
    now = datetime.now(timezone.utc)
    done = run_catalog(context, now=now, names=order.tables, wait_seconds=wait_seconds)
    changed = {(table.table_id, day): facts for table in done.tables for day, facts in _days(table).items()}
    latency = latency_of_publication(context, done)  # first, because the measurement ends at the current time
    days = with_own_day(ids, order.day, changed)
    positions = read_positions(context, Stage.CATALOG, ids, days)
    figures = read_figures(context, ids, days)
    waits = {(table.table_id, wait.date): wait.reason for table in done.tables for wait in table.waiting}
    transitions = {table.table_id: table.open_transitions for table in done.tables}
    examples = {(table.table_id, item.date): item.examples for table in done.tables for item in table.published}
    samples = read_sample_rows(context, context.publisher.name, order.tables, now, examples)
    return Outcome(
        touched={
            (ids[table], day): {
                **figures[ids[table], day],
                **facts,
                **latency.get((table, day), {}),
                **samples.get((table, day), {}),
            }
            for (table, day), facts in changed.items()
        },
        own_day={
            name: {
                **figures[name, order.day],
                "waits": waits.get((table, order.day), "for nothing"),
                **({"changed columns": "; ".join(map(str, transitions[table]))} if transitions.get(table) else {}),
            }
            for table, name in ids.items()
        },
        problems=tuple(_problems(done, order)),
        positions=positions,
    )


def _days(table: TableReport) -> dict[date, Facts]:
    """Returns the facts of each changed day of a table."""
    facts: dict[date, dict[str, object]] = {}
    for step, days in (
        ("marked", table.marked),
        ("closed", table.closed),
        ("switched", table.switched),
        ("expired", table.expired),
        ("withdrawn", table.withdrawn),
    ):
        for day in days:
            facts.setdefault(day, {})[step] = True
    for item in table.published:
        facts.setdefault(item.date, {}).update(
            {
                "dagster/uri": item.location,
                "location before": item.location_before or "not in the catalog",
                "location after": item.location,
                "published objects": item.objects,
                "published rows": item.rows,
                "published bytes": item.bytes,
            }
        )
    return dict(facts)


def _problems(done: CatalogReport, order: RunOrder) -> Iterator[Problem]:
    """Yields problems. In a manual run, tables held by another run count as problems, because the caller must wait for
    them.
    """
    for table in done.tables:
        yield from table.problems
        if table.skipped and not order.by_sensor:
            yield Problem(table=table.table, reason=table.skip_reason, transient=True)
