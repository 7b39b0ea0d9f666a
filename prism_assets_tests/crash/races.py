"""Races in a forced order: processes that stand still at named points while others go on, and what must hold then.

Each function is one order of steps that a lock or a fence decides. It returns sentences, none if all is well; without
the lock or the fence it returns some, which null controls prove.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from prism_assets.platform import build_context
from prism_assets.settings import load_settings
from prism_assets_tests.builders import a_table, utc
from prism_assets_tests.crash.fleet import Worker
from prism_assets_tests.crash.fork_server import Child
from prism_assets_tests.crash.judge import judge
from prism_assets_tests.crash.lives import Author, Drop, Life, Phase, do, put
from prism_assets_tests.crash.processes import environment
from prism_assets_tests.crash.reader import Poller
from prism_assets_tests.faults.glue import GlueFault
from prism_assets_tests.world import World

EVENTS = "log.events"
DAY = date(2026, 3, 1)
NOON, AFTER, LATER = "2026-03-01T12:00", "2026-03-02T00:10", "2026-03-02T00:20"
LEASE = 1.0
_PATIENCE = 30.0


def act(steps: list[list[str]]) -> None:
    """What a process of a race does: steps, each with its instant."""
    context = build_context(load_settings(), progress=lambda message: print(message, flush=True))
    for step, now in steps:
        for turn in do(context, step, utc(now)):
            for error in turn.errors:
                print(error, flush=True)


@dataclass
class Actor:
    """A process of a race, which may stand still at a failpoint until it is told to go on."""

    child: Child
    file: Path | None

    def stands(self) -> None:
        """Waits until it stands at its failpoint."""
        assert self.file is not None
        reached = self.file.with_suffix(self.file.suffix + ".reached")
        end = time.monotonic() + _PATIENCE
        while not reached.exists():
            assert not self.child.ended.is_set(), f"it ended before it stood still: {self.child.said()}"
            assert time.monotonic() < end, f"it never stood still: {self.child.said()}"
            time.sleep(0.01)

    def goes_on(self) -> None:
        """Lets it go on."""
        assert self.file is not None
        self.file.unlink()

    def ends(self) -> int:
        """Waits for its end, and returns its exit status."""
        return self.child.wait(60)


@dataclass
class Stage:
    """A world with processes on it, a reader that polls, and everything that arrived."""

    worker: Worker
    world: World
    poller: Poller
    author: Author = field(default_factory=lambda: Author(1))
    drops: list[Drop] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def drop(self, *starts: str, now: str = NOON, rows: int = 6) -> Drop:
        """Lets an object arrive."""
        made = self.author.drop(EVENTS, *(starts or ("2026-03-01T11:00",)), rows=rows)
        self.drops.append(made)
        put(self.world.root / "buckets" / "staging", made, utc(now))
        return made

    def start(self, *steps: tuple[str, str], at: str = "", hit: int = 1) -> Actor:
        """Starts a process that does the steps, and stands still at a failpoint if asked to."""
        number = next(self._numbers)
        file = self.world.root / f"pause{number}" if at else None
        if file:
            file.touch()
        before = f"{hit - 1}*off->" if hit > 1 else ""
        points = {"PRISM_FAILPOINTS": f"{at}={before}1*pause({file})"} if at else {}
        child = self.worker.fork_server.run(
            f"{__name__}:act",
            {"steps": [list(step) for step in steps]},
            environment(self.world, **points),
            self.world.root / f"actor{number}.txt",
        )
        return Actor(child, file)

    def run(self, *steps: tuple[str, str]) -> int:
        """Does the steps in a process of their own, to its end."""
        return self.start(*steps).ends()

    def value(self, statement: str) -> Any:
        """One value out of PostgreSQL."""
        with self.world.context.database.begin() as connection:
            return connection.exec_driver_sql(statement).scalar_one()

    def wait_until(self, statement: str, seconds: float = _PATIENCE) -> None:
        """Waits until PostgreSQL says that something is so."""
        end = time.monotonic() + seconds
        while not self.value(statement):
            assert time.monotonic() < end, f"it never came to be: {statement}"
            time.sleep(0.02)

    def at_rest(self) -> list[str]:
        """Two more runs, an hour apart, by nobody's hand; then everything is judged."""
        life = Life({EVENTS: "UTC"}, (), (Phase(utc("2026-03-03T01:00"), ()),), (EVENTS,), tuple(self.drops))
        found = []
        for rest in life.rests:
            if status := self.run(("run", rest.now.strftime("%Y-%m-%dT%H:%M"))):
                found.append(f"a run at rest ended with {status}")
        return found or judge(self.world, life)


def expire_lease() -> None:
    """Stands still for longer than a lease."""
    time.sleep(LEASE + 0.3)


def epoch(stage: Stage) -> Iterator[str]:
    """A batch is starting while the day is marked: either the mark waits for it, or the batch sees the mark."""
    stage.drop()
    stage.run(("run", NOON))
    stage.drop(now=NOON)
    batch = stage.start(("discover", NOON), ("stream", NOON), at="stream.in_start")
    batch.stands()
    marking = stage.start(("catalog", AFTER), at="catalog.after_close")
    time.sleep(0.5)
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
    time.sleep(0.5)
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
    time.sleep(0.5)
    first.goes_on()
    if {first.ends(), second.ends()} != {0}:
        yield f"a worker failed: {first.child.said()} {second.child.said()}"
    if "given to" in first.child.said() + second.child.said():
        yield f"two workers ran one job: {first.child.said()} {second.child.said()}"


def dead_batch(stage: Stage) -> Iterator[str]:
    """A worker stands still beyond its lease while another converts its objects: its commit changes nothing (I8)."""
    stage.drop()
    stage.run(("discover", NOON))
    zombie = stage.start(("stream", NOON), at="stream.after_convert")
    zombie.stands()
    zombie.child.kill(19)
    expire_lease()
    other = stage.start(("stream", NOON), at="stream.after_convert")
    other.stands()
    zombie.child.kill(18)
    zombie.goes_on()
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
    zombie = stage.start(("merge", LATER), at="merge.before_commit")
    zombie.stands()
    zombie.child.kill(19)
    expire_lease()
    other = stage.start(("merge", LATER), at="merge.before_commit")
    other.stands()
    zombie.child.kill(18)
    zombie.goes_on()
    zombie.ends()
    if stage.value("SELECT count(*) FROM prism_merge_ranges"):
        yield "the worker whose job was given to another committed it"
    other.goes_on()
    if other.ends() != 0:
        yield f"the worker that took the job over failed: {other.child.said()}"


def ids_in_order(stage: Stage) -> Iterator[str]:
    """A commit that has taken ids is slower than a later one: no merge passes over its objects (H3)."""
    stage.drop()
    stage.run(("run", NOON))
    stage.drop()
    slow = stage.start(("discover", NOON), ("stream", NOON), at="stream.after_insert")
    slow.stands()
    stage.drop()
    fast = stage.start(("discover", NOON), ("stream", NOON), ("merge", NOON), at="merge.before_commit")
    time.sleep(1.0)
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
    """An object has another length than is recorded when its day closes: no manifest names it, readers keep theirs."""
    stage.drop()
    stage.drop()
    stage.run(("run", NOON))
    keys = [item.key for item in stage.world.context.stores.list("lake", "") if "/live/" in item.key]
    path = stage.world.root / "buckets" / "lake" / keys[0]
    body, aside = path.read_bytes(), stage.world.root / "aside"
    _padded(body, aside)
    aside.rename(path)
    stage.run(("catalog", AFTER))
    stage.run(("catalog", AFTER))
    time.sleep(0.3)
    if stage.poller.violations:
        yield "readers were sent to a manifest that was not verified"
    sound = stage.world.root / "sound"
    sound.write_bytes(body)
    sound.rename(path)


def _padded(body: bytes, path: Path) -> None:
    """The same rows in other bytes."""
    import pyarrow.parquet as pq

    aside = path.with_suffix(".was")
    aside.write_bytes(body)
    pq.write_table(pq.read_table(aside), path, compression="none", use_dictionary=False)


def ignored_update(stage: Stage) -> Iterator[str]:
    """The catalog says that it did what it has not done: only what is read back is recorded."""
    stage.drop()
    stage.run(("run", NOON))
    fault = GlueFault("BatchUpdatePartition", "ignored")
    stage.worker.glue.faults.append(fault)
    stage.run(("catalog", AFTER))
    assert fault.injected, "the catalog was not asked to update anything"
    shown = stage.world.partition(DAY.isoformat()).location
    if stage.value("SELECT current_manifest_version + coalesce(published_object_id, 0) FROM prism_partitions") and (
        "/live/" in shown and stage.value(_RECORDED_AS_CLOSED)
    ):
        yield f"a publication is recorded that the catalog does not show: it shows {shown}"


_RECORDED_AS_CLOSED = "SELECT count(*) FROM prism_partitions WHERE published_object_id IS NOT NULL"


def late_publisher(stage: Stage) -> Iterator[str]:
    """A catalog run loses its lock and stands still while another publishes more: the record never goes back (H7)."""
    stage.drop()
    stage.run(("run", NOON), ("catalog", AFTER))
    stage.drop(now=AFTER)
    stage.run(("discover", LATER), ("stream", LATER))
    zombie = stage.start(("catalog", LATER), at="catalog.after_publish")
    zombie.stands()
    stage.drop(now=LATER)
    stage.run(("discover", LATER), ("stream", LATER))
    take_lock_away(stage)
    stage.run(("catalog", LATER))
    reached = stage.value("SELECT coalesce(published_object_id, 0) FROM prism_partitions")
    zombie.goes_on()
    zombie.ends()
    if stage.value("SELECT coalesce(published_object_id, 0) FROM prism_partitions") < reached:
        yield "the record of what is published went back"


def two_publishers(stage: Stage) -> Iterable[str]:
    """Two catalog runs at once: the second leaves the table to the first, so that none publishes something older.

    What goes wrong without that is what the reader sees.
    """
    stage.drop()
    stage.run(("run", NOON), ("catalog", AFTER))
    stage.drop(now=AFTER)
    stage.run(("discover", LATER), ("stream", LATER))
    first = stage.start(("catalog", LATER), at="catalog.after_manifest")
    first.stands()
    stage.drop(now=LATER)
    stage.run(("discover", LATER), ("stream", LATER), ("catalog", LATER))
    time.sleep(0.3)
    first.goes_on()
    first.ends()
    time.sleep(0.3)
    return ()


def take_lock_away(stage: Stage) -> None:
    """The sessions of all others end, as when a server fails over, and leases with time."""
    stage.value(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    expire_lease()


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
        late_publisher,
        two_publishers,
    )
}


@contextmanager
def _stage(worker: Worker) -> Iterator[Stage]:
    with worker.world() as world:
        world.apply(a_table(EVENTS, merge="{interval: 0, target_bytes: 1}"))
        poller = Poller(world.settings, (EVENTS,))
        poller.start()
        try:
            yield Stage(worker, world, poller)
        finally:
            poller.finish()


def run(worker: Worker, name: str) -> list[str]:
    """What a worker of the fleet does: one race, then rest, then judgement."""
    found: list[str] = []
    with _stage(worker) as stage:
        found += RACES[name](stage)
        found += stage.at_rest()
        found += stage.poller.finish()
    return found
