"""Dagster in this process on an instance of its own, with nothing left out: ticks, runs, events and compute logs."""

from __future__ import annotations

import logging
import sqlite3
import sys
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from dagster import DagsterInstance
from dagster._core.remote_origin import InProcessCodeLocationOrigin
from dagster._core.scheduler.instigation import SensorInstigatorData
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import InProcessWorkspaceLoadTarget
from dagster._daemon.sensor import execute_sensor_iteration

_DEFINITIONS = Path(__file__).resolve().parents[2] / "prism_assets" / "definitions.py"
_IN_PROCESS = {
    "run_coordinator": {"module": "dagster._core.run_coordinator", "class": "DefaultRunCoordinator"},
    "run_launcher": {
        "module": "dagster._core.launcher.sync_in_memory_run_launcher",
        "class": "SyncInMemoryRunLauncher",
    },
    "telemetry": {"enabled": False},
}


class StoredDagster:
    """`tick` is one round of the sensor daemon. It returns after the requested runs."""

    def __init__(self, root: Path, instance: DagsterInstance, workspace: WorkspaceProcessContext) -> None:
        self._root = root
        self._workspace = workspace
        self.instance = instance

    def tick(self) -> None:
        """Evaluates every due sensor. In the first round all are due."""
        for _ in execute_sensor_iteration(self._workspace, logging.getLogger("dagster"), None, None):
            pass

    def forget_ticks(self) -> None:
        """Makes every sensor due again."""
        for state in self.instance.all_instigator_state():
            self.instance.delete_instigator_state(state.instigator_origin_id, state.selector_id)

    def break_cursor(self, sensor: str) -> None:
        """Makes the next tick of a sensor fail with an unexpected error."""
        for state in self.instance.all_instigator_state():
            if state.instigator_name == sensor:
                self.instance.update_instigator_state(state.with_data(SensorInstigatorData(cursor="{")))

    def failed_ticks(self) -> list[str]:
        """The errors of all failed ticks."""
        states = self.instance.all_instigator_state()
        ticks = [
            tick for item in states for tick in self.instance.get_ticks(item.instigator_origin_id, item.selector_id)
        ]
        return [tick.error.to_string() for tick in ticks if tick.error]

    def text(self) -> str:
        """Everything stored, one value per line, with compressed values opened."""
        return "\n".join(text for path in sorted(self._root.rglob("*")) if path.is_file() for text in _values(path))


@contextmanager
def stored_dagster(root: Path) -> Iterator[StoredDagster]:
    """An instance below `root`, and the definitions as the settings in the environment make them."""
    sys.modules.pop(_DEFINITIONS.stem, None)  # Dagster takes a file that it has loaded once from there
    origin = InProcessCodeLocationOrigin(
        LoadableTargetOrigin(python_file=str(_DEFINITIONS)), location_name="prism_assets"
    )
    with (
        DagsterInstance.local_temp(str(root), overrides=_IN_PROCESS) as instance,
        WorkspaceProcessContext(instance, InProcessWorkspaceLoadTarget(origin)) as workspace,
    ):
        yield StoredDagster(root, instance, workspace)


def _values(path: Path) -> Iterator[str]:
    if path.suffix != ".db":
        yield path.read_bytes().decode("utf-8", "replace")
        return
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        names = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for name in names:
            for row in database.execute(f'SELECT * FROM "{name}"'):
                yield from map(_as_text, row)


def _as_text(value: object) -> str:
    if not isinstance(value, bytes):
        return str(value)
    with suppress(zlib.error):
        value = zlib.decompress(value)
    return value.decode("utf-8", "replace")
