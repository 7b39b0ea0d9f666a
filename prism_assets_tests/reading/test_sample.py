"""Sample rows: the first rows of some objects, with any columns."""

from __future__ import annotations

import pytest

from prism_assets.domain.errors import InvariantBroken, PrismError
from prism_assets.reading.sample import read_sample
from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.world import World

DAY = "2026-03-01"
NOON = f"{DAY}T12:00"


@pytest.fixture
def urls(world: World) -> list[str]:
    """Two live objects of two rows each."""
    world.apply(a_table())
    for start in (NOON, f"{DAY}T13:00"):
        world.drop(some_rows(2, utc(start)))
    world.stream(NOON)
    world.catalog(NOON)
    return [item.url for item in world.partition(DAY).objects]


@pytest.mark.parametrize(("most", "count"), [(1, 1), (3, 3), (9, 4)])
def test_a_sample_has_the_first_rows_of_the_first_objects(world: World, urls: list[str], most: int, count: int) -> None:
    sample = read_sample(world.settings, ["time", "id"], urls, most)
    assert sample.columns == ("time", "id")
    assert [row[0] for row in sample.rows][:1] == [utc(NOON)]
    assert len(sample.rows) == count


def test_a_column_that_an_object_lacks_is_null(world: World, urls: list[str]) -> None:
    assert [row[0] for row in read_sample(world.settings, ["added", "id"], urls, 2).rows] == [None, None]


def test_what_is_no_parquet_is_named(world: World, urls: list[str]) -> None:
    path = world.root / "buckets" / urls[0].removeprefix("s3://")
    path.write_bytes(b"not parquet at all")
    with pytest.raises(InvariantBroken, match=r"prism-\d+\.parquet is no sound Parquet object"):
        read_sample(world.settings, ["id"], urls, 5)


def test_an_object_that_went_away_is_an_error_of_the_tree(world: World, urls: list[str]) -> None:
    (world.root / "buckets" / urls[0].removeprefix("s3://")).unlink()
    with pytest.raises(PrismError):
        read_sample(world.settings, ["id"], urls, 5)
