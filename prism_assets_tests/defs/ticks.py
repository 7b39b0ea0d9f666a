"""A process that evaluates sensors as a code server of Dagster does, and counts what it holds between ticks.

`python -m prism_assets_tests.defs.ticks TICKS EVERY` prints a line of JSON after every EVERY ticks. Instance and
settings come from the environment. Python's cycle collector stays off between two counts: a busy code server collects
seldom, and no session or file may wait for it.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from itertools import cycle, islice

import psutil
from dagster import DagsterInstance, RepositoryDefinition
from dagster._core.instance.ref import InstanceRef
from dagster._core.remote_origin import RegisteredCodeLocationOrigin
from dagster._core.remote_representation.external_data import SensorExecutionErrorSnap
from dagster._grpc.impl import get_external_sensor_execution

from prism_assets.definitions import defs
from prism_assets_tests.defs.held import Held, held_by

_AT_ONCE = 4
"""Sensors evaluated at a time, as set in dagster.yaml."""


def main(ticks: int, every: int) -> None:
    """Evaluates all sensors in turn, a few at a time, until there were `ticks` ticks."""
    repository = defs.get_repository_def()
    with DagsterInstance.get() as instance:
        ref = instance.get_ref()
    names = cycle(sorted(sensor.name for sensor in repository.sensor_defs))
    gc.disable()
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for _ in range(0, ticks, every):
            list(pool.map(lambda name: _tick(repository, ref, name), islice(names, every)))
            print(json.dumps(asdict(_held())), flush=True)


def read_looks(output: str) -> list[Held]:
    """Returns the counts printed by such a process."""
    return [Held(**json.loads(line)) for line in output.splitlines() if line.startswith("{")]


def _tick(repository: RepositoryDefinition, ref: InstanceRef, name: str) -> None:
    origin = RegisteredCodeLocationOrigin("prism_assets")
    result = get_external_sensor_execution(repository, origin, ref, name, None, None, None, None, None)
    if isinstance(result, SensorExecutionErrorSnap):
        raise RuntimeError(f"{name}: {result.error}")


def _held() -> Held:
    """Counts before a collection of cycles, and memory after it."""
    process, port = psutil.Process(), int(os.environ["PRISM_DAGSTER_PG_PORT"])
    counts = held_by(process, port)
    gc.collect()
    return replace(counts, megabytes=held_by(process, port).megabytes)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
