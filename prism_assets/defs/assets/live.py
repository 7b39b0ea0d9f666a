"""The asset `live`: brings tables up to date. A batch takes everything pending for its tables, of all days.

Manual runs and backfills also repair the requested day, and rebuild it if the run's configuration asks for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from prism_assets.defs.assets.figures import read_figures, table_ids, with_own_day
from prism_assets.defs.assets.latency import latency_of_batches
from prism_assets.defs.assets.outcome import Facts, Outcome, RunOrder
from prism_assets.defs.assets.rebuilds import rebuild_days, rebuild_facts
from prism_assets.defs.assets.reported_positions import read_positions
from prism_assets.defs.keys import Stage
from prism_assets.domain.errors import PrismError
from prism_assets.domain.problems import Problem
from prism_assets.domain.text import counted
from prism_assets.metadata.intake import backlog
from prism_assets.stages.context import StageContext
from prism_assets.stages.deadlines import Deadline
from prism_assets.stages.discover.listings import DiscoverReport, run_discover
from prism_assets.stages.repair.report import RepairReport
from prism_assets.stages.repair.run import run_repair
from prism_assets.stages.stream.report import PartitionChange, StreamReport, TableLines
from prism_assets.stages.stream.run import stream_batches

_LONGEST_SECONDS = 1800.0


def make_live(context: StageContext, order: RunOrder) -> Outcome:
    """Converts pending objects. Without a sensor, first runs discovery, then repairs the requested day."""
    now = order.started
    ids = table_ids(context, order.tables)
    discovered = DiscoverReport(scans=()) if order.by_sensor else run_discover(context, now=now, names=order.tables)
    streamed, problems = _streamed(context, order)
    if not order.by_sensor and not problems:
        problems = _unconverted(context, ids, now)
    repaired, irreparable = (None, ()) if order.by_sensor or problems else _repaired(context, order)
    rebuilt, refused = rebuild_days(context, order, ids) if order.rebuilds and not problems else ({}, ())
    changes = {(change.table_id, change.date): change for change in streamed.changes}
    days = with_own_day(ids, order.day, changes)
    positions = read_positions(context, Stage.LIVE, ids, days)
    figures = read_figures(context, ids, days)
    latency = latency_of_batches(context, ids, streamed.batch_ids)
    lines = {ids[item.table_id]: _lines(item) for item in streamed.lines}
    return Outcome(
        touched={
            (ids[table], day): {
                **figures[ids[table], day],
                **_facts(change, streamed),
                **lines.get(ids[table], {}),
                **latency.get((table, day), {}),
            }
            for (table, day), change in changes.items()
        },
        own_day={
            name: {
                **figures[name, order.day],
                **lines.get(name, {}),
                **_repairs(repaired, name),
                **rebuild_facts(rebuilt.get(name)),
            }
            for name in ids.values()
        },
        problems=(*_unlisted(discovered, ids), *streamed.problems, *problems, *irreparable, *refused),
        positions=positions,
    )


def _streamed(context: StageContext, order: RunOrder) -> tuple[StreamReport, tuple[Problem, ...]]:
    """Converts, and returns what was committed even if an error ends it early.

    Stops after `_LONGEST_SECONDS`, because a run of hours could be killed from outside before it reports anything.
    Later runs take the rest of the backlog.
    """
    report, deadline = StreamReport(), Deadline.after(_LONGEST_SECONDS)
    try:
        for part in stream_batches(context, now=order.started, names=order.tables):
            report += part
            if deadline.is_over:
                context.progress("stream: this run's time is over, the next one continues")
                break
    except PrismError as error:
        return report, tuple(Problem.of(error, table) for table in order.tables)
    return report, ()


def _unconverted(context: StageContext, ids: dict[int, str], before: datetime) -> tuple[Problem, ...]:
    """Returns older objects still not converted. A manual run fails with them, because its caller waits for them."""
    with context.database.begin() as connection:
        waiting = backlog.count_waiting(connection, list(ids), before)
    return tuple(
        Problem(
            table=ids[table],
            reason=(
                f"{counted(count, 'object is', 'objects are')} not converted yet: another worker holds them, or "
                "they are tried again later"
            ),
            transient=True,
        )
        for table, count in sorted(waiting.items())
    )


def _repaired(context: StageContext, order: RunOrder) -> tuple[RepairReport | None, tuple[Problem, ...]]:
    """Repairs the requested day. Damaged objects that remain are problems: readers of the day miss rows, or fail."""
    try:
        report = run_repair(context, names=order.tables, day=order.day)
    except PrismError as error:
        return None, tuple(Problem.of(error, table, order.day) for table in order.tables)
    irreparable = [
        Problem(table=item.table, date=item.date, reason=f"{item.key} {item.reason}", transient=item.transient)
        for item in report.irreparable
    ]
    skipped = [
        Problem(table=item.table, date=item.date, reason=item.skip_reason, transient=True)
        for item in report.partitions
        if item.skipped
    ]
    return report, (*irreparable, *skipped)


def _repairs(repaired: RepairReport | None, name: str) -> Facts:
    if repaired is None:
        return {}
    days = [item for item in repaired.partitions if item.table == name]
    return {
        "objects missing": sum(item.missing for item in days),
        "objects damaged": sum(item.damaged for item in days),
        "objects repaired": sum(item.repaired for item in days),
    }


def _facts(change: PartitionChange, streamed: StreamReport) -> Facts:
    return {
        "rows added": change.rows,
        "objects added": change.objects,
        "delayed objects added": change.delayed_objects,
        "bytes added": change.bytes,
        "seconds of all batches": round(streamed.seconds, 2),
    }


def _lines(lines: TableLines) -> Facts:
    """Returns counts over all lines read for the table. Lines that became no row have no day."""
    facts: Facts = {
        "lines read, of all days": lines.lines_in,
        "lines quarantined, of all days": lines.quarantined,
        "lines filtered, of all days": lines.filtered,
    }
    return {**facts, "lines of other tables, of all days": lines.elsewhere} if lines.elsewhere else facts


def _unlisted(discovered: DiscoverReport, ids: dict[int, str]) -> Iterator[Problem]:
    """Yields a problem for each stream that could not be listed."""
    for scan in discovered.scans:
        if scan.error:
            yield Problem(table=ids[scan.table_id], reason=scan.error, transient=scan.transient)
