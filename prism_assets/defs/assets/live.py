"""live: brings tables up to date. A batch takes whatever is pending for its tables, of all days.

By hand and by backfill it also repairs the day that was asked for.
"""

from __future__ import annotations

from prism_assets.defs.assets.delays import delays_of_batch
from prism_assets.defs.assets.figures import read_figures, table_ids, with_own_day
from prism_assets.defs.assets.outcome import Facts, Outcome, Task
from prism_assets.domain.tables import TableDefinition
from prism_assets.stages.context import StageContext
from prism_assets.stages.discover import DiscoverReport, run_discover
from prism_assets.stages.repair import RepairReport, run_repair
from prism_assets.stages.stream import PartitionChange, StreamReport, run_stream


def make_live(context: StageContext, task: Task) -> Outcome:
    """Discovers, unless a sensor has just done so, converts what is pending, and repairs a day asked for by hand."""
    now = task.started
    ids = table_ids(context, task.tables)
    discovered = DiscoverReport(scans=()) if task.by_sensor else run_discover(context, now=now, names=task.tables)
    streamed = run_stream(context, now=now, names=task.tables)
    repaired = None if task.by_sensor else run_repair(context, names=task.tables, day=task.day)
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
        own_day={name: {**figures[name, task.day], **_repairs(repaired, name)} for name in ids.values()},
        sick=_joined(_sick(discovered, streamed, ids, context.choose_tables(task.tables)), _irreparable(repaired)),
    )


def _repairs(repaired: RepairReport | None, name: str) -> Facts:
    if repaired is None:
        return {}
    days = [item for item in repaired.partitions if item.table == name]
    return {
        "objects missing": sum(item.missing for item in days),
        "objects damaged": sum(item.damaged for item in days),
        "objects repaired": sum(item.repaired for item in days),
    }


def _irreparable(repaired: RepairReport | None) -> dict[str, tuple[str, ...]]:
    """Tables with objects that could not be repaired: readers of that day miss rows, or fail."""
    sick: dict[str, tuple[str, ...]] = {}
    for item in repaired.irreparable if repaired else ():
        sick[item.table] = (*sick.get(item.table, ()), f"{item.date}: {item.key} {item.reason}")
    return sick


def _joined(left: dict[str, tuple[str, ...]], right: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    return {name: (*left.get(name, ()), *right.get(name, ())) for name in {*left, *right}}


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
