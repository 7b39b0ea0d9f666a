"""The cells of the S3 faults: each operation with each harm during a day of a lake, which must survive."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from prism_assets_tests.crash.actors import AFTER, LATER, NOON, Stage, on_stage
from prism_assets_tests.crash.fleet import Work, Worker
from prism_assets_tests.faults.s3 import HARMS, OPERATIONS, S3Fault

LONG = 900_000
"""Bytes of a broken line. Several together exceed one upload part."""


@dataclass(frozen=True)
class Cell:
    """One operation, one harm, the number of harmed requests, and the number of requests before."""

    operation: str
    harm: str
    skip: int = 0
    times: int = 2

    def __str__(self) -> str:
        return f"{self.operation}, {self.harm}"


NEVER_ASKED = "Delete"
"""Objects are deleted by DeleteObjects alone."""
CELLS: Sequence[Cell] = tuple(
    Cell(operation, harm) for operation in OPERATIONS if operation != NEVER_ASKED for harm in HARMS
)


def work_of(cell: Cell) -> Work:
    """Returns the fleet work of a cell."""
    return Work(function=f"{__name__}:run", arguments=dict(vars(cell)))


def run(worker: Worker, operation: Any, harm: Any, skip: int, times: int) -> dict[str, Any]:
    """Plays a day through the proxy, clears the faults, and judges the lake at rest."""
    fault = S3Fault(operation, harm, times, skip)
    violations: list[str] = []
    with worker.world_on_s3(max_attempts=3) as world, on_stage(worker, world) as stage:
        stage.settings["PRISM_S3_ENDPOINT"] = worker.proxy.endpoint
        worker.proxy.faults.append(fault)
        _a_day(stage)
        asked, never = worker.proxy.seen[operation], worker.proxy.seen[NEVER_ASKED]
        worker.proxy.faults.clear()
        violations += stage.at_rest()
        violations += stage.poller.finish()
        violations += [f"{never} objects were deleted one by one, which no cell looks at"] if never else []
    return {"asked": asked, "injected": fault.injected, "violations": violations}


def _a_day(stage: Stage) -> None:
    """Objects that are sound, broken, missing or changed at their read. The day closes with a late one."""
    stage.drop(broken=1)
    stage.drop("2026-02-28T23:00", "2026-03-01T11:00", broken=7, broken_bytes=LONG)
    stage.drop(vanishes=True)
    changing = stage.drop()
    for _ in range(3):  # the first may fail
        stage.run(("discover", NOON))
    stage.vanish()
    stage.overwrite(changing)
    stage.run(("stream", NOON), ("merge", NOON), ("catalog", NOON))
    stage.run(("run", NOON))
    stage.drop("2026-03-01T13:00", "2026-03-02T00:01")
    stage.run(("discover", AFTER), ("catalog", AFTER), ("stream", AFTER), ("catalog", AFTER))
    stage.run(("run", LATER))
