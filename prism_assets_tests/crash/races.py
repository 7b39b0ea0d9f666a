"""Races in a forced order: processes stand still at named points while others continue, and the invariants must hold.

Each function is one order of steps decided by a lock or a fence. It returns sentences, none if all is well. Null
controls prove that it returns some without the lock or fence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import pyarrow.parquet as pq

from prism_assets_tests.crash.actors import AFTER, LATER, LONG_LEASE, NOON, Stage, on_stage
from prism_assets_tests.crash.fleet import Worker
from prism_assets_tests.faults.glue import GlueFault

DAY = "2026-03-01"


def epoch(stage: Stage) -> Iterator[str]:
    """A batch starts while the day is marked: either the mark waits for the batch, or the batch sees the mark."""
    stage.drop()
    stage.run(("run", NOON))
    stage.drop(now=NOON)
    batch = stage.start(("discover", NOON), ("stream", NOON), at="stream.in_start")
    batch.stands()
    marking = stage.start(("catalog", AFTER), at="catalog.after_close")
    stage.settles(marking)
    batch.goes_on()
    batch.ends()
    if marking.file and marking.file.exists():
        marking.goes_on()
    marking.ends()
    if stage.value(_MARKED_TOO_LOW):
        yield "a batch that knew nothing of the mark is above it"


_MARKED_TOO_LOW = (
    "SELECT count(*) FROM prism_staging_objects o JOIN prism_small_objects s USING (prism_staging_object_id) "
    "JOIN prism_partitions p USING (prism_partition_id) "
    "WHERE NOT s.delayed AND p.closing_batch_id IS NOT NULL AND o.first_batch_id > p.closing_batch_id"
)


def claim(stage: Stage) -> Iterator[str]:
    """Two workers look for pending objects at once: each object is one worker's."""
    stage.drop()
    stage.run(("discover", NOON))
    first = stage.start(("stream", NOON), at="stream.in_start")
    first.stands()
    second = stage.start(("stream", NOON))
    stage.settles(second)
    first.goes_on()
    if {first.ends(), second.ends()} != {0}:
        yield f"a worker failed: {first.child.said()} {second.child.said()}"
    if (count := stage.value("SELECT count(*) FROM prism_stream_batches")) != 1:
        yield f"{count} batches claimed one object"


def claim_of_merges(stage: Stage) -> Iterator[str]:
    """Two workers look for due merges at once: each job is one worker's."""
    stage.drop()
    stage.run(("discover", NOON), ("stream", NOON), ("catalog", NOON), ("catalog", AFTER))
    first = stage.start(("merge", LATER), at="merge.in_claim")
    first.stands()
    second = stage.start(("merge", LATER))
    stage.settles(second)
    first.goes_on()
    if {first.ends(), second.ends()} != {0}:
        yield f"a worker failed: {first.child.said()} {second.child.said()}"
    if "given to" in first.child.said() + second.child.said():
        yield f"two workers ran one job: {first.child.said()} {second.child.said()}"


def dead_batch(stage: Stage) -> Iterator[str]:
    """A worker stands still beyond its lease while another converts its objects: its commit changes nothing (I8)."""
    stage.drop()
    stage.run(("discover", NOON))
    zombie = stage.start(("stream", NOON), at="stream.after_convert", lease=LONG_LEASE)
    zombie.stands()
    zombie.freezes()
    other = stage.start(("stream", NOON), at="stream.after_convert")
    other.stands()
    zombie.thaws()
    if zombie.ends() != 0:
        yield f"the worker whose batch was given to another failed: {zombie.child.said()}"
    if stage.value("SELECT count(*) FROM prism_small_objects"):
        yield "the worker whose batch was given to another committed it"
    other.goes_on()
    if other.ends() != 0:
        yield f"the worker that took the objects over failed: {other.child.said()}"


def dead_merge(stage: Stage) -> Iterator[str]:
    """A worker stands still beyond its lease while another merges its partition: its commit changes nothing (I8)."""
    stage.drop()
    stage.run(("discover", NOON), ("stream", NOON), ("catalog", NOON), ("catalog", AFTER))
    zombie = stage.start(("merge", LATER), at="merge.before_commit", lease=LONG_LEASE)
    zombie.stands()
    zombie.freezes()
    other = stage.start(("merge", LATER), at="merge.before_commit")
    other.stands()
    zombie.thaws()
    zombie.ends()
    if stage.value("SELECT count(*) FROM prism_merge_ranges"):
        yield "the worker whose job was given to another committed it"
    other.goes_on()
    if other.ends() != 0:
        yield f"the worker that took the job over failed: {other.child.said()}"


def ids_in_order(stage: Stage) -> Iterator[str]:
    """A commit with earlier ids is slower than a later one: no merge skips its objects (H3)."""
    stage.drop()
    stage.run(("run", NOON))
    stage.drop()
    slow = stage.start(("discover", NOON), ("stream", NOON), at="stream.after_insert")
    slow.stands()
    stage.drop()
    fast = stage.start(("discover", NOON), ("stream", NOON), ("merge", NOON), at="merge.before_commit")
    stage.settles(fast)
    slow.goes_on()
    if slow.ends() != 0:
        yield f"the slow worker failed: {slow.child.said()}"
    fast.goes_on()
    if fast.ends() != 0:
        yield f"the fast worker failed: {fast.child.said()}"
    passed = stage.value(
        "SELECT count(*) FROM prism_merge_ranges r JOIN LATERAL (SELECT sum(s.row_count) AS rows "
        "FROM prism_small_objects s WHERE s.prism_partition_id = r.prism_partition_id AND "
        "s.prism_small_object_id > r.lower_bound AND s.prism_small_object_id <= r.upper_bound) s ON true "
        "WHERE r.lower_bound IS NOT NULL AND s.rows <> r.row_count"
    )
    if passed:
        yield "a merge passed over an object"


def damaged_object(stage: Stage) -> Iterator[str]:
    """An object differs in length from the record when its day closes: no manifest names it, and readers keep the old
    one.
    """
    stage.drop()
    stage.drop()
    stage.run(("run", NOON))
    keys = [item.key for item in stage.world.context.stores.list("lake", "") if "/live/" in item.key]
    path = stage.world.root / "buckets" / "lake" / keys[0]
    body, aside = path.read_bytes(), stage.world.root / "aside"
    _padded(body, aside)
    with stage.poller.between_looks():
        aside.rename(path)
    stage.run(("catalog", AFTER))
    stage.run(("catalog", AFTER))
    stage.is_looked_at()
    if stage.poller.violations:
        yield "readers were sent to a manifest that was not verified"
    sound = stage.world.root / "sound"
    sound.write_bytes(body)
    with stage.poller.between_looks():
        sound.rename(path)


def _padded(body: bytes, path: Path) -> None:
    """The same rows in other bytes."""
    aside = path.with_suffix(".was")
    aside.write_bytes(body)
    pq.write_table(pq.read_table(aside), path, compression="none", use_dictionary=False)


def ignored_update(stage: Stage) -> Iterator[str]:
    """The catalog reports both updates of a run without making one: only the state read back is recorded."""
    stage.drop()
    stage.run(("run", NOON))
    fault = GlueFault("BatchUpdatePartition", "ignored", times=2)
    stage.worker.glue.faults.append(fault)
    stage.run(("catalog", AFTER))
    assert fault.injected == 2, "the catalog was not asked twice to update anything"
    shown = stage.world.partition(DAY).location
    if stage.value("SELECT current_version + coalesce(published_object_id, 0) FROM prism_partition_states") and (
        "/live/" in shown and stage.value(_RECORDED_AS_CLOSED)
    ):
        yield f"a publication is recorded that the catalog does not show: it shows {shown}"


_RECORDED_AS_CLOSED = "SELECT count(*) FROM prism_publications WHERE published_object_id > 0"


def late_record(stage: Stage) -> Iterator[str]:
    """A catalog run freezes between its call and its record while another publishes: no record goes back (H7)."""
    yield from _overtaken_at("catalog.after_publish", stage)


def late_call(stage: Stage) -> Iterator[str]:
    """A catalog run freezes before its call while another publishes more: readers are not sent back (H7, I8)."""
    yield from _overtaken_at("catalog.after_manifest", stage)


def _overtaken_at(point: str, stage: Stage) -> Iterator[str]:
    stage.drop()
    stage.run(("run", NOON), ("catalog", AFTER))
    stage.drop(now=AFTER)
    stage.run(("discover", LATER), ("stream", LATER))
    zombie = stage.start(("catalog", LATER), at=point, lease=LONG_LEASE)
    zombie.stands()
    zombie.freezes()
    stage.drop(now=LATER)
    stage.run(("discover", LATER), ("stream", LATER), ("catalog", LATER))
    reached = stage.value(_PUBLISHED)
    stage.is_looked_at()
    zombie.thaws()
    zombie.ends()
    stage.is_looked_at()
    if stage.value(_PUBLISHED) < reached:
        yield "the record of what is published went back"


_PUBLISHED = "SELECT coalesce(published_object_id, 0) FROM prism_partition_states"


def two_publishers(stage: Stage) -> Iterable[str]:
    """Two catalog runs at once: the second leaves the table to the first, so neither publishes older content.

    Without the lease the reader sees a publication go back.
    """
    stage.drop()
    stage.run(("run", NOON), ("catalog", AFTER))
    stage.drop(now=AFTER)
    stage.run(("discover", LATER), ("stream", LATER))
    first = stage.start(("catalog", LATER), at="catalog.after_manifest")
    first.stands()
    stage.drop(now=LATER)
    stage.run(("discover", LATER), ("stream", LATER), ("catalog", LATER))
    stage.is_looked_at()
    first.goes_on()
    first.ends()
    stage.is_looked_at()
    return ()


Race = Callable[[Stage], Iterable[str]]

RACES: Mapping[str, Race] = {
    race.__name__: race
    for race in (
        epoch,
        claim,
        claim_of_merges,
        dead_batch,
        dead_merge,
        ids_in_order,
        damaged_object,
        ignored_update,
        late_record,
        late_call,
        two_publishers,
    )
}


def run(worker: Worker, name: str) -> list[str]:
    """Runs a worker of the fleet: one race, then rest, then judgement."""
    found: list[str] = []
    with worker.world() as world, on_stage(worker, world) as stage:
        found += RACES[name](stage)
        found += stage.at_rest()
        found += stage.poller.finish()
    return found
