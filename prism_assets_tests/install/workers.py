"""Live workers of installed wheels, as a service manager runs them."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from prism_assets.domain.errors import WrongUse
from prism_assets.stages.live.holdings import live_tables
from prism_assets_tests.install.clean import Environment
from prism_assets_tests.world import World

_SECONDS = 300.0


@contextmanager
def a_worker(desk: Environment, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Starts a worker. The test ends it; what is left at the end is killed."""
    with (folder / "worker.log").open("ab") as log:
        worker = subprocess.Popen(
            [desk.folder / "bin" / "prism", "worker", "--list-seconds", "1"],
            cwd=folder,
            env=dict(desk.variables),
            stdout=log,
            stderr=log,
        )
    try:
        yield worker
    finally:
        worker.kill()
        worker.wait()


def await_rows(world: World, rows: int, table: str = "log.signups") -> None:
    """Waits until readers see that many rows of a table."""
    deadline = time.monotonic() + _SECONDS
    while (found := _readable(world, table)) < rows:
        assert time.monotonic() < deadline, f"{found} of {rows} rows of {table} are readable"
        time.sleep(0.2)


def _readable(world: World, table: str) -> int:
    try:
        ((rows,),) = world.query(f"SELECT count(*) FROM {table}")
    except WrongUse:
        return 0
    return int(rows)


def await_holders(world: World, workers: int) -> None:
    """Waits until so many processes hold tables."""
    deadline = time.monotonic() + _SECONDS
    while len(found := _holders(world)) != workers:
        assert time.monotonic() < deadline, f"tables are held by {found}"
        time.sleep(0.2)


def _holders(world: World) -> set[str]:
    with world.context.database.begin() as connection:
        return {holder.worker.partition("/")[0] for holder in live_tables(connection).values()}


def work_at_the_same_time(world: World) -> bool:
    """Whether two processes ever had a batch at work at one moment."""
    with world.context.database.begin() as connection:
        return bool(connection.exec_driver_sql(_AT_ONCE).scalar())


_AT_ONCE = """
SELECT EXISTS (
    SELECT FROM prism_stream_batches a JOIN prism_stream_batches b
        ON a.worker < b.worker AND a.start_time < b.finish_time AND b.start_time < a.finish_time
    WHERE a.state = 'done' AND b.state = 'done')
"""
