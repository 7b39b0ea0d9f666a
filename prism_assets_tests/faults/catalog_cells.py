"""The cells of the Glue faults: faults of calls during a day, and calls that take effect after the end."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from prism_assets_tests.crash.actors import AFTER, LATER, LEASE, NOON, Stage, on_stage
from prism_assets_tests.crash.fleet import Ageing, Work, Worker
from prism_assets_tests.faults.glue import GlueFault

AT_REST = "2026-03-03T01:00"
BATCHES = ("BatchCreatePartition", "BatchUpdatePartition")
WRITES = ("CreateDatabase", "CreateTable", "UpdateTable", *BATCHES)
READS = ("GetTable", "BatchGetPartition")
TRIES = 4
"""How often the client itself tries a call: a longer fault reaches the stage."""


@dataclass(frozen=True)
class Cell:
    """One operation, and the faults of its first calls."""

    operation: str
    kind: str
    times: int = 1
    skip: int = 0

    def __str__(self) -> str:
        return f"{self.operation}, {self.kind} {self.times} times"


CELLS: Sequence[Cell] = (
    *(Cell(operation, "throttled", times) for operation in (*WRITES, *READS) for times in (1, 2 * TRIES)),
    *(Cell(operation, kind) for operation in (*WRITES, *READS) for kind in ("refused", "lost", "cut")),
    *(Cell(operation, "lost", 2 * TRIES) for operation in WRITES),
    *(Cell(operation, "ignored") for operation in BATCHES),
    *(Cell(operation, "wrong entry", times) for operation in BATCHES for times in (1, 2)),
)


def work_of(cell: Cell) -> Work:
    """Returns the fleet work of a cell."""
    return Work(function=f"{__name__}:run", arguments=dict(vars(cell)))


def run(worker: Worker, operation: str, kind: Any, times: int, skip: int) -> dict[str, Any]:
    """Plays two days with a change of the definition in between, and judges them at rest."""
    fault = GlueFault(operation, kind, times, skip)
    violations: list[str] = []
    with worker.world() as world, on_stage(worker, world) as stage:
        stage.poller.may_fail = operation in READS
        worker.glue.faults.append(fault)
        _two_days(stage)
        worker.glue.faults.clear()
        violations += stage.at_rest()
        violations += stage.poller.finish()
    return {"injected": fault.injected, "violations": violations}


def _two_days(stage: Stage) -> None:
    stage.drop("2026-02-28T23:00", "2026-03-01T11:00")
    stage.run(("run", NOON))
    stage.drop("2026-03-01T11:30")
    stage.run(("run", NOON))
    stage.widen()
    stage.run(("apply", NOON), ("catalog", NOON))
    stage.drop("2026-03-01T23:00", "2026-03-02T00:05", now=AFTER)
    stage.run(("run", AFTER))
    stage.run(("run", LATER))


def late(worker: Worker, operation: str, skip: int) -> list[str]:
    """A call is delayed when its caller dies. Others publish until nothing is left to do; then the call takes effect.

    The immediate view of readers is unavoidable, because the catalog already has the call. Two runs must restore it.
    """
    fault = GlueFault(operation, "late", times=1, skip=skip)
    found: list[str] = []
    with worker.world(calls_age=False) as world, on_stage(worker, world) as stage:
        stage.drop()
        stage.run(("run", NOON), ("catalog", AFTER))
        stage.drop(now=AFTER)
        stage.run(("discover", LATER), ("stream", LATER))
        worker.glue.faults.append(fault)
        dying = stage.start(("catalog", LATER), at="catalog.after_publish")
        while not fault.held:
            assert not dying.child.ended.is_set(), f"no call was on the way: {dying.child.said()}"
        dying.child.kill()
        dying.child.ended.wait(10)
        time.sleep(LEASE + 0.3)
        stage.drop(now=LATER)
        for _ in range(3):
            stage.run(*((step, AT_REST) for step in ("discover", "stream", "merge", "catalog")))
        found += (f"before it lands: {sentence}" for sentence in stage.poller.finish())
        worker.glue.land(fault)
        Ageing(world.settings.database_url.get_secret_value()).age(0.0)
        found += stage.at_rest()
    return found
