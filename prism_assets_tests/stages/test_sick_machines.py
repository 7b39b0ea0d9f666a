"""Workers whose machines lack something that any work needs: no object is charged with it."""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from prism_assets.domain.tables.definition import Definitions
from prism_assets.domain.work.convert import ConvertResult, ConvertTask
from prism_assets.domain.work.write import WriteResult, WriteTask
from prism_assets.kernels.convert import convert_object
from prism_assets.kernels.parquet.accepted_rows import Limits
from prism_assets.kernels.write import write_object
from prism_assets.objectstore.config import StoreConfig
from prism_assets.objectstore.lake import Lake
from prism_assets.objectstore.stores import Stores
from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.stages.engines import Through, another_worker, rest_is_over
from prism_assets_tests.stages.test_merge import a_closed_day, jobs
from prism_assets_tests.stages.test_whose_fault import NOON, objects
from prism_assets_tests.world import World

TRIES = 12
SMALL = Limits(rows=4_000, piece=100, portion=100)


class SickStores(Stores):
    """Reads of keys with some word meet an error of the operating system."""

    def __init__(self, config: StoreConfig, word: str, error: Exception) -> None:
        super().__init__(config)
        self._word, self._error = word, error

    def get_chunks(
        self, bucket: str, key: str, *, etag: str | None = None, length: int | None = None, chunk: int | None = None
    ) -> Iterator[bytes]:
        if self._word in key:
            raise self._error
        return super().get_chunks(bucket, key, etag=etag, length=length, chunk=chunk)

    def get(self, bucket: str, key: str, *, etag: str | None = None, length: int | None = None) -> bytes:
        if self._word in key:
            raise self._error
        return super().get(bucket, key, etag=etag, length=length)


@dataclass
class SmallMachine(Through):
    """An engine with little memory and its own stores."""

    lake: Lake
    stores: Stores

    def convert(self, tasks: Sequence[ConvertTask], definitions: Definitions) -> Iterator[ConvertResult]:
        for task in tasks:
            table = definitions[task.table_id, task.definition_version]
            yield convert_object(task, table, self.stores, self.lake, limits=SMALL)

    def write(self, tasks: Sequence[WriteTask], definitions: Definitions) -> Iterator[WriteResult]:
        for task in tasks:
            table = definitions[task.table_id, task.definition_version]
            yield write_object(task, table, self.stores, self.lake)


def on_machine(world: World, stores: Stores) -> World:
    return another_worker(world, SmallMachine(world.context.engine, world.context.lake, stores))


FAULTS = [OSError(errno.EMFILE, "Too many open files"), RuntimeError("can't start new thread")]


@pytest.fixture
def events(world: World) -> World:
    world.apply(a_table(merge="{interval: 0}"))
    return world


def test_a_broken_folder_for_temporary_files_gives_up_no_object(
    events: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    worker = on_machine(events, Stores(events.settings.store))
    events.drop(some_rows(1, utc(NOON)))
    big = events.drop(some_rows(300, utc(NOON)))
    with monkeypatch.context() as broken:
        broken.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
        for _ in range(TRIES):
            assert worker.stream(NOON).errors == ()
            rest_is_over(events)
    assert objects(events) == [("done", 0, 0), ("pending", 0, 0)]
    with events.context.database.begin() as connection:
        statement = f"SELECT last_error FROM prism_staging_objects WHERE object_key = '{big}'"
        said = connection.exec_driver_sql(statement).scalar_one()
    assert said.startswith("the machine of the worker: the folder ")
    assert "make room there, or set TMPDIR where tasks run" in said
    assert worker.stream(NOON).rows_out == 300, "and it goes on by itself"


@pytest.mark.parametrize("fault", FAULTS, ids=["no open files", "no threads"])
def test_a_machine_without_open_files_or_threads_gives_up_no_object(events: World, fault: Exception) -> None:
    events.drop(some_rows(1, utc(NOON)))
    sick = events.drop(some_rows(1, utc(NOON)))
    worker = on_machine(events, SickStores(events.settings.store, sick, fault))
    for _ in range(TRIES):
        assert worker.stream(NOON).errors == ()
        rest_is_over(events)
    assert objects(events) == [("done", 0, 0), ("pending", 0, 0)]


@pytest.mark.parametrize("fault", FAULTS, ids=["no open files", "no threads"])
def test_a_machine_without_open_files_or_threads_parks_no_merge(world: World, fault: Exception) -> None:
    a_closed_day(world)
    worker = on_machine(world, SickStores(world.settings.store, "log.events", fault))
    for turn in range(TRIES):
        assert len(worker.merge(f"2026-03-02T{turn + 1:02}:00").errors) == 1
    (job,) = jobs(world)
    assert (job.parked, job.attempts) == (False, 0)
    assert "the machine of the worker" in str(job.last_error)
    assert len(world.merge("2026-03-03T00:00").merged) == 1


def test_an_error_of_this_code_is_charged_as_before(events: World) -> None:
    """The control of the tests above."""
    sick = events.drop(some_rows(1, utc(NOON)))
    for error in (OSError("these bytes are no file of that kind"), KeyError("no such column")):
        worker = on_machine(events, SickStores(events.settings.store, sick, error))
        worker.stream(NOON)
        rest_is_over(events)
    assert objects(events) == [("pending", 2, 0)]
