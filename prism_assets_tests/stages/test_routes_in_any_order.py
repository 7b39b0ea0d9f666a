"""Routes change in any order with reads by one table, stops, failures, retries and replays: each line has one table."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import suppress

import pytest

from prism_assets.domain.errors import WrongUse
from prism_assets.stages.discover.listings import run_discover
from prism_assets.stages.replay.run import run_replay
from prism_assets.stages.stream.run import run_stream
from prism_assets.stages.stream.unread import retry_object
from prism_assets_tests.builders import utc
from prism_assets_tests.stages.shared_prefix import (
    LATER,
    NOON,
    OTHERWISE,
    WHEN,
    a_share,
    finish,
    pairs,
    put,
    stopped,
    taking,
    undivided,
)
from prism_assets_tests.world import World

KINDS = ("a", "b", "c")
TABLES = ("log.accounts", "log.events")
LATE_NAMED = b'{"kind": "%s", "id": %d, "when": "2026-03-01T12:00:00Z"}'


class Walk:
    """Does random steps in a lake of two tables that share a prefix."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.random = random.Random(seed)
        self.ids: list[int] = []
        self.taken = ["a"]
        self.stopped: str | None = None
        self.reads_when = False
        self.apply()

    def apply(self) -> None:
        files = {
            "log.accounts": a_share("log.accounts", taking(*self.taken)),
            "log.events": a_share("log.events", OTHERWISE),
        }
        for name, text in files.items():
            text = stopped(text) if name == self.stopped else text
            files[name] = text.replace("{name: time,", WHEN) if self.reads_when else text
        self.world.apply(*files.values())

    def put(self) -> None:
        kinds = self.random.choices(KINDS, k=self.random.randrange(1, 5))
        late = [LATE_NAMED % (self.random.choice(KINDS).encode(), 10**6 + len(self.ids))]
        found = put(self.world, *kinds, extra=late)
        self.ids += [number for numbers in found.values() for number in numbers]
        self.ids.append(10**6 + len(self.ids) - len(kinds))
        run_discover(self.world.context, now=utc(NOON))

    def reroute(self) -> None:
        self.taken = self.random.sample(KINDS, self.random.randrange(1, 3))
        self.apply()

    def stop(self) -> None:
        self.stopped = self.random.choice([None, *TABLES])
        self.apply()

    def learn(self) -> None:
        """Lines in quarantine may be rows now."""
        self.reads_when = True
        self.apply()

    def read(self) -> None:
        run_stream(self.world.context, now=utc(NOON), names=[self.random.choice(TABLES)])

    def fail(self) -> None:
        statement = """
            UPDATE prism_staging_objects SET state = 'failed' WHERE prism_staging_object_id = (
                SELECT min(prism_staging_object_id) FROM prism_staging_objects WHERE state = 'pending')
        """
        with self.world.context.database.begin() as connection:
            connection.exec_driver_sql(statement)

    def retry(self) -> None:
        for key in pairs(self.world):
            with suppress(WrongUse):  # it waits, or is done
                retry_object(self.world.context, f"s3://staging/{key}")

    def replay(self) -> None:
        run_replay(self.world.context, self.random.choice(TABLES), now=utc(LATER))


@pytest.mark.parametrize("seed", range(4))
def test_each_line_is_in_one_table_after_each_step_and_at_rest(world: World, seed: int, long: bool) -> None:
    walk = Walk(world, seed)
    steps = [walk.put, walk.reroute, walk.stop, walk.learn, walk.read, walk.fail, walk.retry, walk.replay]
    for step in walk.random.choices(steps, [4, 4, 2, 1, 4, 2, 2, 2], k=40 if long else 14):
        step()
        assert undivided(world) == []
    walk.put()
    walk.stopped = None
    walk.learn()
    walk.retry()
    finish(world)
    for table in TABLES:
        run_replay(world.context, table, now=utc(LATER))
    finish(world)
    assert undivided(world) == []
    seen = Counter(number for table in TABLES for number in world.ids(table))
    assert [number for number, count in seen.items() if count > 1] == []
    assert {number for number in walk.ids if number < 10**6} <= set(seen) <= set(walk.ids)
