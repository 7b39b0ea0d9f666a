"""Spool objects in the stages after their commit: quarantine and replay, rebuilds, and erasures by facts."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from prism_assets.stages.erase.run import continue_erasures, run_erase
from prism_assets.stages.rebuild.run import run_rebuild
from prism_assets.stages.replay.run import run_replay
from prism_assets_tests.builders import utc
from prism_assets_tests.kernels.messages.builders import AMessage
from prism_assets_tests.metadata.worlds import a_world
from prism_assets_tests.stages.spooled import DAY, a_topic_table, spool
from prism_assets_tests.world import World

NOON, NEXT_DAY = "2026-03-01T12:00", "2026-03-02T00:10"
TIME = '{name: time, type: timestamp, required: true, source: "@timestamp"}'
COLUMNS = ('{name: place, type: bigint, source: "@offset"}', '{name: owner, type: string, source: "@key"}')


def a_file(*columns: str, stream: str = "topic: app") -> str:
    text = a_topic_table(stream=stream, columns=columns, merge="{interval: 0}")
    return text.replace("{name: time, type: timestamp, required: true}", TIME)


@pytest.fixture
def world(services: Any, database_url: str, tmp_path: Any) -> Iterator[World]:
    """A platform whose garbage collection may delete all garbage in one run."""
    with a_world(services, database_url, tmp_path, gc_max_fraction=1.0, quarantine_days=3_650) as made:
        yield made


def a_message(value: bytes | None, key: bytes | None = None) -> AMessage:
    return AMessage(0, value, key, milliseconds=int(utc(NOON).timestamp() * 1000))


def converted(world: World, *messages: AMessage, offset: int = 0, now: str = NOON) -> None:
    spool(world, messages, offset)
    world.stream(now)


def rows(world: World, columns: str, now: str = NOON) -> list[tuple[Any, ...]]:
    world.catalog(now)
    return world.query(f"SELECT {columns} FROM log.events ORDER BY id")


def test_tombstones_become_rows_by_a_replay_once_the_stream_says_so(world: World) -> None:
    world.apply(a_file(*COLUMNS, stream="topic: app, tombstones: reject"))
    converted(world, a_message(b'{"id":1}', b"ann"), a_message(None, b"bob"))
    assert rows(world, "id, place, owner") == [(1, 0, "ann")]
    world.apply(a_file(*COLUMNS, stream="topic: app, tombstones: row"))
    world.merge(NEXT_DAY)
    world.catalog(NEXT_DAY)
    assert run_replay(world.context, "log.events", now=utc(NEXT_DAY)).errors == ()
    assert rows(world, "id, place, owner", NEXT_DAY) == [(1, 0, "ann"), (None, 1, "bob")]


def test_a_rebuild_fills_columns_that_read_facts(world: World) -> None:
    world.apply(a_file())
    converted(world, a_message(b'{"id":1}', b"ann"), a_message(None), a_message(b'{"id":2}', b"bob"))
    world.apply(a_file(*COLUMNS))
    world.merge(NEXT_DAY)
    world.catalog(NEXT_DAY)
    assert run_rebuild(world.context, "log.events", day=DAY, now=utc(NEXT_DAY)).errors == ()
    assert rows(world, "id, place, owner", NEXT_DAY) == [(1, 0, "ann"), (2, 2, "bob")]


def test_an_erasure_by_the_key_of_messages_is_proved(world: World) -> None:
    """The text of the quarantined message goes: nobody knows whether it is of the person, because it has no key."""
    world.apply(a_file(*COLUMNS))
    converted(world, a_message(b'{"id":1}', b"ann"), a_message(b'{"id":2}', b"bob"), a_message(b'"of ann"', b"ann"))
    world.merge(NEXT_DAY)
    world.catalog(NEXT_DAY)
    assert run_erase(world.context, "log.events", "owner = 'ann'", rows=1, now=utc(NEXT_DAY)).errors == ()
    converted(world, a_message(b'{"id":3}', b"ann"), a_message(b'{"id":4}', b"cy"), offset=3, now=NEXT_DAY)
    assert rows(world, "id, owner", NEXT_DAY) == [(2, "bob"), (4, "cy")]
    for days in (10, 20):
        continue_erasures(world.context, now=datetime.now(timezone.utc) + timedelta(days=days))
    kept = [gzip.decompress(path.read_bytes()) for path in world.root.glob("buckets/lake/**/*.gz")]
    assert kept
    assert not [line for body in kept for line in map(json.loads, body.splitlines()) if "text" in line]
