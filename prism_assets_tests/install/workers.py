"""Live workers of installed wheels, as a service manager runs them."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from prism_assets.domain.errors import WrongUse
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


def await_rows(world: World, rows: int) -> None:
    """Waits until readers see that many rows of log.signups."""
    deadline = time.monotonic() + _SECONDS
    while _readable(world) < rows:
        assert time.monotonic() < deadline, f"{_readable(world)} of {rows} rows are readable"
        time.sleep(0.2)


def _readable(world: World) -> int:
    try:
        ((rows,),) = world.query("SELECT count(*) FROM log.signups")
    except WrongUse:
        return 0
    return int(rows)
