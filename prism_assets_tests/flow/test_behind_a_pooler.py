"""All stages behind a pooler in transaction mode, such as PgBouncer: results are right, and sessions stay clean."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from prism_assets.platform import build_context
from prism_assets.stages.stream.run import run_stream
from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.flow.any_order import play
from prism_assets_tests.flow.test_erasures_in_any_order import ErasuresInAnyOrder
from prism_assets_tests.flow.test_rebuilds_in_any_order import RebuildsInAnyOrder
from prism_assets_tests.metadata.worlds import a_world
from prism_assets_tests.postgres import PostgresServer
from prism_assets_tests.reliability import Figures
from prism_assets_tests.requests import Requests, a_join_table, some_changes
from prism_assets_tests.transaction_pooler import TransactionPooler, transaction_pooler
from prism_assets_tests.world import World

DAY = "2026-03-01"
NOON = f"{DAY}T12:00"
AFTER = "2026-03-02T00:10"
WORKERS, BATCHES = 3, 12
"""Enough for a driver that prepares what it has sent five times."""


@pytest.fixture(scope="module")
def pooler(postgres: PostgresServer) -> Iterator[TransactionPooler]:
    url = postgres.create_database()
    with transaction_pooler(url) as made:
        yield made
    postgres.drop_database(url)


@pytest.fixture
def world(services: Mapping[str, str], pooler: TransactionPooler, tmp_path: Path) -> Iterator[World]:
    with a_world(services, pooler.url, tmp_path, stream_max_objects=1) as made:
        yield made


def test_streams_of_several_workers_run_beside_each_other(world: World, pooler: TransactionPooler) -> None:
    world.apply(a_table())
    rows = [some_rows(2, utc(NOON)) for _ in range(WORKERS * BATCHES)]
    for some in rows:
        world.drop(some)
    world.discover(NOON)
    together = threading.Barrier(WORKERS)

    def work() -> int:
        context = build_context(world.settings)
        together.wait()
        try:
            return run_stream(context, now=utc(NOON)).rows_out
        finally:
            context.database.dispose()

    with ThreadPoolExecutor(WORKERS) as threads:
        converted = [threads.submit(work) for _ in range(WORKERS)]
        assert sum(one.result() for one in converted) == sum(map(len, rows))
    world.catalog(NOON)
    assert world.ids() == sorted(row["id"] for some in rows for row in some)
    assert pooler.left_behind() == []


def test_an_iceberg_table_is_committed(world: World, pooler: TransactionPooler) -> None:
    world.apply(a_table(iceberg="true"))
    for _ in range(3):
        world.drop(some_rows(4, utc(NOON)))
        world.stream(NOON)
        world.iceberg(NOON)
    world.catalog(NOON)
    for _ in range(2):
        world.catalog(AFTER)
        world.merge(AFTER, everything=True)
    world.iceberg(AFTER)
    assert len(world.iceberg_ids()) == 12
    assert world.iceberg_ids() == world.ids()
    assert pooler.left_behind() == []


def test_changes_of_a_join_table_are_folded(world: World, pooler: TransactionPooler) -> None:
    world.apply(a_join_table())
    requests = Requests(world)
    changes = some_changes(3, 60, f"{DAY}T21:00", requests=10, hours=6)
    for start in range(0, len(changes), 20):
        requests.arrive(changes[start : start + 20], f"{DAY}T21:00")
        assert requests.show(f"{DAY}T21:00") == requests.wanted()
    assert pooler.left_behind() == []


@pytest.mark.parametrize("machine", [RebuildsInAnyOrder, ErasuresInAnyOrder], ids=lambda machine: machine.__name__)
def test_the_stages_in_any_order(
    machine: type[RebuildsInAnyOrder], services: Mapping[str, str], pooler: TransactionPooler, long: bool
) -> None:
    """Streams, merges, publications, garbage collections, repairs, rebuilds, replays and erasures."""
    play(
        machine,
        services,
        pooler.url,
        Figures(None),
        examples=20 if long else 1,
        long=long,
        world_settings=lambda _number: {"gc_max_fraction": 1.0, "quarantine_days": 36_500},
    )
    assert pooler.left_behind() == []
