"""The way of shares to their tasks: in the function of a small job, as rows of a large one."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from prism_assets.domain.work.write import WriteTask
from prism_assets.engine.spark import travel
from prism_assets.engine.worker import encode_share
from prism_assets.objectstore.config import StoreConfig
from prism_assets.objectstore.lake import Lake

_LAKE = Lake("lake", "", StoreConfig())


def carried(shares: Sequence[str]) -> int:
    """Returns the bytes that every task of a job unpacks."""
    _, body = travel(shares)
    return len(cloudpickle.dumps(body))  # type: ignore[no-untyped-call]


def test_the_function_of_a_large_job_does_not_grow_with_its_shares() -> None:
    of_400, of_800 = ([str(number) * 50_000 for number in range(count)] for count in (400, 800))
    assert carried(of_400) == carried(of_800) < 1_000
    assert travel(of_400)[0] == of_400


@pytest.mark.parametrize(("tasks", "characters"), [(1, 1_000_000), (4, 5_000), (40, 20_000), (400, 50_000)])
def test_the_functions_of_all_tasks_together_are_limited(tasks: int, characters: int) -> None:
    assert tasks * carried(["x" * characters] * tasks) < (32 << 20) + tasks * 10_000


def test_both_ways_run_the_same_share() -> None:
    share = encode_share(WriteTask.kernel, [], {}, _LAKE)
    in_function, as_row = travel([share]), travel([share, "x" * (40 << 20)])
    assert in_function[0] == 1
    for column, (_, body) in ((pa.array([0]), in_function), (pa.array([share]), as_row)):
        assert list(body(iter([pa.RecordBatch.from_arrays([column], ["row"])]))) == []
