"""live: brings tables up to date. A batch takes whatever is pending for its tables, of all days."""

from __future__ import annotations

from prism_assets.defs.assets.delays import delays_of_batch
from prism_assets.defs.assets.figures import read_figures, table_ids, with_own_day
from prism_assets.defs.assets.outcome import Facts, Outcome, Task
from prism_assets.domain.tables import TableDefinition
from prism_assets.stages.context import StageContext
from prism_assets.stages.discover import DiscoverReport, run_discover
from prism_assets.stages.stream import PartitionChange, StreamReport, run_stream


def make_live(context: StageContext, task: Task) -> Outcome:
    """Discovers, unless a sensor has just done so, and converts what is pending."""
    now = task.started
    ids = table_ids(context, task.tables)
    discovered = DiscoverReport(scans=()) if task.by_sensor else run_discover(context, now=now, names=task.tables)
    streamed = run_stream(context, now=now, names=task.tables)
    changes = {(change.table_id, change.date): change for change in streamed.changes}
    figures = read_figures(context, ids, with_own_day(ids, task.day, changes))
    delays = delays_of_batch(context, ids, now) if changes else {}
    return Outcome(
        touched={
            (ids[table], day): {
                **figures[ids[table], day],
                **_facts(change, streamed),
                **delays.get((table, day), {}),
            }
            for (table, day), change in changes.items()
        },
        own_day={name: figures[name, task.day] for name in ids.values()},
        sick=_sick(discovered, streamed, ids, context.choose_tables(task.tables)),
    )


def _facts(change: PartitionChange, streamed: StreamReport) -> Facts:
    return {
        "rows added": change.rows,
        "objects added": change.objects,
        "delayed objects added": change.delayed_objects,
        "bytes added": change.bytes,
        "seconds of all batches": round(streamed.seconds, 2),
    }


def _sick(
    discovered: DiscoverReport, streamed: StreamReport, ids: dict[int, str], tables: list[TableDefinition]
) -> dict[str, tuple[str, ...]]:
    """Tables with a stream that could not be listed, or with objects that were given up, for which rows are missing."""
    sick: dict[str, tuple[str, ...]] = {}
    for scan in discovered.scans:
        if scan.error:
            sick[ids[scan.table_id]] = (*sick.get(ids[scan.table_id], ()), scan.error)
    for line in streamed.failed:
        owners = [str(table.name) for table in tables if any(line.startswith(stream.url) for stream in table.streams)]
        for name in owners:
            sick[name] = (*sick.get(name, ()), f"gave up {line}")
    return sick
