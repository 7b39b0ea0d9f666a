"""kill -9 and SIGTERM of `prism worker`: nothing is lost or doubled, and others go on at once."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path

import pytest

from prism_assets.metadata import leases
from prism_assets.metadata.leases import LeaseKind
from prism_assets_tests.builders import a_table, some_rows
from prism_assets_tests.crash.processes import Command, run, start
from prism_assets_tests.world import World


def fill(world: World, objects: int = 3) -> list[int]:
    """Drops objects of the present, because a worker has no other clock. Returns their ids."""
    rows = [some_rows(10, datetime.now(timezone.utc)) for _ in range(objects)]
    for of_object in rows:
        world.drop(of_object)
    return [row["id"] for of_object in rows for row in of_object]


def until(is_so: Callable[[], object], worker: Command) -> None:
    """Waits for something that a worker does."""
    end = time.monotonic() + 120
    while not is_so():
        assert worker.is_running(), worker.finish()
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.05)


def holders(world: World) -> int:
    with world.context.database.begin() as connection:
        return sum(len(leases.load_all_holders(connection, kind)) for kind in (LeaseKind.LIVE, LeaseKind.WORKER))


def converted(world: World) -> int:
    with world.context.database.begin() as connection:
        return int(
            connection.exec_driver_sql("SELECT count(*) FROM prism_staging_objects WHERE state = 'done'").scalar_one()
        )


def unclaimed(world: World) -> int:
    """Counts the objects that wait for their first attempt again."""
    with world.context.database.begin() as connection:
        statement = "SELECT count(*) FROM prism_staging_objects WHERE state = 'pending' AND attempts = 0"
        return int(connection.exec_driver_sql(statement).scalar_one())


@pytest.mark.parametrize(
    "point", ["stream.after_start", "stream.after_convert", "stream.in_commit", "catalog.after_begin"]
)
def test_a_killed_worker_loses_and_doubles_nothing(world: World, point: str) -> None:
    world.apply(a_table(merge="{interval: 0}"))
    ids = fill(world)
    status, output = start(world, "worker", PRISM_FAILPOINTS=f"{point}=kill9").finish()
    assert status == -signal.SIGKILL, f"the kill did not happen: {output}"
    with world.context.database.begin() as connection:  # nobody wants to wait for calls of killed processes here
        connection.exec_driver_sql("UPDATE prism_publication_intents SET expire_time = start_time")
    status, output = run(world, "run", "--until-idle")
    assert status == 0, output
    assert world.ids() == ids


def test_a_worker_ends_with_its_batch_at_a_signal_and_gives_its_leases_back(world: World, tmp_path: Path) -> None:
    world.apply(a_table())
    ids, gate = fill(world), tmp_path / "gate"
    gate.touch()
    worker = start(world, "worker", PRISM_FAILPOINTS=f"stream.after_convert=1*pause({gate})")
    until((tmp_path / "gate.reached").exists, worker)
    assert holders(world) == 2
    worker.send(signal.SIGTERM)
    gate.unlink()
    status, output = worker.finish()
    assert status == 0, output
    assert "ended" in output
    assert (converted(world), holders(world)) == (3, 0)
    assert world.ids() == ids


def test_a_worker_whose_batch_takes_too_long_releases_it_without_a_charge(world: World, tmp_path: Path) -> None:
    world.apply(a_table())
    ids, gate = fill(world), tmp_path / "gate"
    gate.touch()
    worker = start(world, "worker", PRISM_FAILPOINTS=f"stream.after_convert=1*pause({gate})")
    until((tmp_path / "gate.reached").exists, worker)
    worker.send(signal.SIGTERM)
    worker.send(signal.SIGALRM)  # as after the time that SIGTERM grants
    status, output = worker.finish()
    assert status == 0, output
    assert "was released" in output
    assert (unclaimed(world), holders(world)) == (3, 0)
    status, output = run(world, "run")
    assert (status, world.ids()) == (0, ids), output
