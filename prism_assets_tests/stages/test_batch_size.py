"""Batches of Stream follow the slots that the engine had at its last job."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from prism_assets.domain.batch_size import LEAST, BatchSize
from prism_assets.stages.stream.plan import start_batch
from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.stages.engines import Through, another_worker
from prism_assets_tests.world import World

_NOON = "2026-03-01T12:00"
_COPIES = """
INSERT INTO prism_staging_objects
    (prism_stream_id, prism_table_id, bucket_name, object_key, etag, content_length, first_receive_time)
SELECT prism_stream_id, prism_table_id, bucket_name, object_key || n, etag, content_length, first_receive_time
FROM prism_staging_objects, generate_series(1, 1024) n
"""


@dataclass
class Cluster(Through):
    """An engine with more cores than this machine has."""

    cores: int = 1

    @property
    def slots(self) -> int:
        return self.cores


@pytest.mark.parametrize(("cores", "objects"), [(16, 1_024), (20, 1_025)])
def test_a_large_cluster_gets_more_objects_in_one_batch(world: World, cores: int, objects: int) -> None:
    world.apply(a_table())
    world.drop(some_rows(1, utc(_NOON)))
    world.discover(_NOON)
    with world.context.database.begin() as connection:
        connection.exec_driver_sql(_COPIES)
    plan = start_batch(another_worker(world, Cluster(world.context.engine, cores)).context, None)
    assert plan is not None
    assert len(plan.tasks) == objects


def test_merges_of_a_job_grow_with_the_cluster_and_an_engine_without_one_keeps_the_least(world: World) -> None:
    assert world.context.batch_size == LEAST
    worker = another_worker(world, Cluster(world.context.engine, 40))
    assert worker.context.batch_size == BatchSize(objects=2_560, bytes=40 * 4 * (16 << 20), merges=160)
