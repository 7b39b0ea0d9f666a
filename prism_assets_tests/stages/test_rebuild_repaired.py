"""Repairs of rebuilt days: objects without rows, and objects replaced meanwhile."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

from prism_assets.stages.repair.run import run_repair
from prism_assets_tests.stages.aging import keys
from prism_assets_tests.stages.engines import PausingEngine, another_worker
from prism_assets_tests.stages.test_rebuild import (
    LATER,
    a_version,
    arrive,
    close,
    ids_of_lake,
    is_sound,
    marks,
    rebuilt,
    scalar,
)
from prism_assets_tests.world import World


def bodies(world: World, part: str) -> list[bytes]:
    return sorted(world.context.stores.get("lake", key) for key in keys(world, part))


def test_a_repair_does_not_record_its_length_for_the_object_of_a_rebuild_meanwhile(world: World) -> None:
    world.apply(a_version(1))
    ids = arrive(world, "abc")
    close(world)
    (path,) = (world.root / "buckets" / "lake").rglob("live/**/*.parquet")
    # As another version would encode the same rows.
    pq.write_table(pq.ParquetFile(pa.BufferReader(path.read_bytes())).read(), path, compression="none")
    world.apply(a_version(2))
    lengths = []

    def meanwhile() -> None:
        rebuilt(world)
        lengths.append(scalar(world, "SELECT content_length FROM prism_small_objects"))

    run_repair(another_worker(world, PausingEngine(world.context.engine, meanwhile)).context)
    assert lengths == [scalar(world, "SELECT content_length FROM prism_small_objects")]
    world.catalog(LATER)
    assert ids_of_lake(world) == ids
    assert marks(world) == dict.fromkeys(ids, 2)


def test_an_object_that_a_rebuild_left_without_rows_is_repaired(world: World) -> None:
    world.apply(a_version(1))
    ids = arrive(world, "ab", "bb")
    close(world)
    world.apply(a_version(2, keep="kind = 'a'"))
    rebuilt(world)
    world.catalog(LATER)
    before = {key: world.context.stores.get("lake", key) for key in keys(world, "/delayed/")}
    world.context.stores.delete("lake", list(before))
    report = run_repair(world.context)
    assert (report.missing, report.repaired, report.errors) == (2, 2, ())
    assert bodies(world, "/delayed/") == sorted(before.values())
    world.catalog(LATER)
    assert marks(world) == {ids[0]: 2}
    assert is_sound(world)
