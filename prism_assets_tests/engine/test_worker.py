"""What runs inside a Spark task: repairs travel there and back as everything else does."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import TypeVar

import pyarrow as pa
import pytest

from prism_assets.domain.errors import WrongUse
from prism_assets.domain.tables.definition import Definitions
from prism_assets.domain.work import Task, from_json
from prism_assets.engine.inprocess import InProcessEngine
from prism_assets.engine.worker import encode_share, prepare_worker, run_share, tell_kernel
from prism_assets.kernels.compiled import loaded_kernel
from prism_assets.kernels.requirement import SWITCH, check_kernel
from prism_assets.objectstore.lake import Lake
from prism_assets.stages.repair.run import run_repair
from prism_assets.stages.stream.plan import start_batch
from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.world import World

_Result = TypeVar("_Result")
NOON = "2026-03-01T12:00"


@dataclass
class _AsInSpark(InProcessEngine):
    """Sends repairs as a share, as Spark does, and runs the share here."""

    lake: Lake

    def __post_init__(self) -> None:
        super().__init__(self.lake)

    def run(self, tasks: Sequence[Task[_Result]], definitions: Definitions) -> Iterator[_Result]:
        kind: type[_Result] = tasks[0].result
        return (from_json(kind, text) for text in run_share(encode_share("repair", tasks, definitions, self.lake)))


def test_a_share_is_worked_on_in_the_lake_of_its_driver(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the settings are where the task runs."""
    world.apply(a_table())
    world.drop(some_rows(2, utc(NOON)))
    world.stream(NOON)
    stores, context = world.context.stores, replace(world.context, engine=_AsInSpark(world.context.lake))
    before = {item.key: stores.get("lake", item.key) for item in stores.list("lake", "")}
    stores.delete("lake", [key for key in before if key.endswith(".parquet")])
    for name, value in {"BUCKET": "staging", "PREFIX": "other/", "LOCAL_ROOT": "/nowhere", "S3_ENDPOINT": "x"}.items():
        monkeypatch.setenv(f"PRISM_{name}", value)
    assert run_repair(context).repaired == 1
    assert {item.key: stores.get("lake", item.key) for item in stores.list("lake", "")} == before


def test_a_share_of_repairs_does_what_the_engine_in_this_process_does(world: World) -> None:
    world.apply(a_table())
    for _ in range(3):
        world.drop(some_rows(2, utc(NOON)))
    world.stream(NOON)
    stores = world.context.stores
    before = {item.key: stores.get("lake", item.key) for item in stores.list("lake", "")}
    stores.delete("lake", [key for key in before if key.endswith(".parquet")][:2])
    context = replace(world.context, engine=_AsInSpark(world.context.lake))
    report = run_repair(context, day=date(2026, 3, 1), deep=True)
    assert (report.checked, report.missing, report.repaired, report.errors) == (3, 2, 2, ())
    assert {item.key: stores.get("lake", item.key) for item in stores.list("lake", "")} == before


def test_tasks_of_an_iceberg_table_carry_no_word_of_it(world: World) -> None:
    """Executors of an older version would refuse the definition."""
    world.apply(a_table() + "iceberg: {metrics: [id]}\n")
    world.drop(some_rows(2, utc(NOON)))
    world.discover(NOON)
    plan = start_batch(world.context, None)
    assert plan is not None
    assert [task.metric_columns for task in plan.tasks] == [(2,)]
    share = json.loads(encode_share("convert", plan.tasks, plan.definitions, world.context.lake))
    ((_, _, definition),) = share["definitions"]
    assert "iceberg" not in definition


@pytest.fixture
def no_kernel(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv(SWITCH, "off")
    loaded_kernel.cache_clear()
    yield
    loaded_kernel.cache_clear()


def test_a_worker_without_the_kernel_tells_its_host_and_the_reason(no_kernel: None) -> None:
    numbers = pa.RecordBatch.from_arrays([pa.array([3])], ["number"])
    (answers,) = tell_kernel(iter([numbers]))
    assert [json.loads(answer) for answer in answers.column(0).to_pylist()] == [
        [socket.gethostname(), "PRISM_KERNEL is off"]
    ]


def test_a_task_without_a_required_kernel_is_a_fault_of_the_surroundings(
    no_kernel: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SWITCH, "required")
    monkeypatch.setitem(sys.modules, "prism_kernel", None)
    with pytest.raises(
        ModuleNotFoundError, match=r"^the package prism_kernel .*, and PRISM_KERNEL is required: install"
    ):
        prepare_worker()


def test_a_mistyped_requirement_is_no_permission(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "requird")
    with pytest.raises(WrongUse, match="PRISM_KERNEL must be one of off, required; did you mean required"):
        check_kernel()
