"""merged: joins small objects into big ones."""

from __future__ import annotations

from datetime import datetime, timezone

from prism_assets.defs.assets.figures import read_figures, table_ids, with_own_day
from prism_assets.defs.assets.outcome import Facts, Outcome, Task
from prism_assets.defs.pictures import sizes_picture
from prism_assets.stages.context import StageContext
from prism_assets.stages.merge import MergedPartition, MergeReport, run_merge


def make_merged(context: StageContext, task: Task) -> Outcome:
    """By hand: merges the day asked for now. For a sensor: whatever is due of its tables, as one Spark job."""
    now = datetime.now(timezone.utc)
    ids = table_ids(context, task.tables)
    if task.by_sensor:
        merged = run_merge(context, now=now, names=task.tables)
    else:
        merged = run_merge(context, now=now, names=task.tables, day=task.day, regardless=True)
    done = {(entry.table_id, entry.date): entry for entry in merged.merged}
    figures = read_figures(context, ids, with_own_day(ids, task.day, done))
    return Outcome(
        touched={
            (ids[table], day): {**figures[ids[table], day], **_facts(entry, merged)}
            for (table, day), entry in done.items()
        },
        own_day={name: figures[name, task.day] for name in ids.values()},
        sick={name: reasons for name in ids.values() if (reasons := _reasons(merged, name))},
    )


def _facts(entry: MergedPartition, merged: MergeReport) -> Facts:
    return {
        "rows merged": entry.rows,
        "objects in": entry.objects_in,
        "bytes in": entry.bytes_in,
        "objects out": len(entry.sizes),
        "bytes out": sum(entry.sizes),
        "smallest object out": min(entry.sizes, default=0),
        "objects left behind": entry.left_behind,
        "plan": entry.plan,
        **({"object sizes": sizes_picture(entry.sizes_in, entry.sizes)} if entry.sizes else {}),
        "seconds of all jobs": round(merged.seconds, 2),
    }


def _reasons(merged: MergeReport, name: str) -> tuple[str, ...]:
    return tuple(line.removeprefix(f"{name} ") for line in merged.failed if line.startswith(f"{name} "))
