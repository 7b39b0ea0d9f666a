"""Large objects and objects of dead batches: converted beside the loop of a live worker, in a thread.

Spark may take minutes for them, or not answer at all. The loop goes on meanwhile: it renews its leases and converts
small objects. The batches have leases and tokens of their own, as in any run.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime

from prism_assets.domain.errors import EngineUnavailable, PrismError
from prism_assets.engine.base import Engine
from prism_assets.engine.child import ChildEngine
from prism_assets.metadata.intake.claims import Wanted
from prism_assets.settings import Settings
from prism_assets.stages.context import StageContext
from prism_assets.stages.live import convert
from prism_assets.stages.live.convert import Converted
from prism_assets.stages.stream.commit import release_batch
from prism_assets.stages.stream.plan import StreamPlan

_LOG = logging.getLogger(__name__)
_IDLE_SECONDS, _LONGEST_PAUSE_SECONDS = 1.0, 60.0


@dataclass(frozen=True)
class _Running:
    context: StageContext
    plan: StreamPlan
    since: float


class SlowLane:
    """Takes turns in its own thread. The loop sets `tables`, and collects results and errors."""

    def __init__(
        self,
        context: StageContext,
        child: ChildEngine | None,
        spark: Engine | None,
        clock: Callable[[], datetime],
        *,
        spark_settings: Settings | None = None,
    ) -> None:
        """Without Spark the child converts all, and without a child the engine of the context.

        `spark_settings` limit the batches on Spark.
        """
        self._small = self._all = replace(context, engine=child or context.engine)
        if spark:
            self._all = replace(context, engine=spark, settings=spark_settings or context.settings)
        self._child, self._clock = child, clock
        self.tables: Collection[int] = ()
        """The tables that the worker holds."""
        self._done: queue.SimpleQueue[Converted] = queue.SimpleQueue()
        self._running: _Running | None = None
        self._failures, self._next_try = 0, 0.0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="prism-slow-lane", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def stop(self, seconds: float) -> None:
        """Ends the thread after its batch. A batch that takes longer is released: its own commit then fails."""
        self._stopping.set()
        self._thread.join(seconds)
        running = self._running
        if self._thread.is_alive() and running is not None:
            with suppress(PrismError):  # otherwise the lease of the batch runs out
                release_batch(running.context, running.plan)

    @property
    def busy_seconds(self) -> float:
        """The time of the running batch, or 0. A Spark without executors accepts a job and never begins it."""
        running = self._running
        return time.monotonic() - running.since if running else 0.0

    def collect(self) -> list[Converted]:
        """Returns the results of the batches that ended since the last call."""
        found = []
        while not self._done.empty():
            found.append(self._done.get())
        return found

    def turn(self) -> bool:
        """Converts one batch. Returns False if there was none.

        While Spark does not answer, large objects wait without a failed attempt. Small objects of dead batches then run
        in the child process, because they do not need Spark.
        """
        if time.monotonic() >= self._next_try:
            try:
                worked = self._convert(self._all, convert.SLOW)
                self._failures = 0
                if worked:
                    return True
            except EngineUnavailable as error:
                self._fail(str(error))
        if self._failures and self._convert(self._small, convert.SMALL_SUSPECTS):
            return True
        if self._child is not None:
            self._child.close()  # idle, it would hold 200 MB
        return False

    def _convert(self, context: StageContext, wanted: Wanted) -> bool:
        claimed = convert.start(context, wanted, self.tables)
        if claimed.held:
            self._done.put(Converted(errors=claimed.held))
        if claimed.plan is None:
            return False
        self._running = _Running(context, claimed.plan, time.monotonic())
        if self._stopping.is_set():  # `stop` may have looked for a batch before this line
            self._running = None
            release_batch(context, claimed.plan)
            return False
        try:
            self._done.put(convert.finish(context, claimed.plan, claimed.table_ids, self._clock()))
        finally:
            self._running = None
        return True

    def _fail(self, reason: str) -> None:
        self._failures += 1
        self._next_try = time.monotonic() + min(2.0**self._failures, _LONGEST_PAUSE_SECONDS)
        self._done.put(Converted(errors=(reason,)))

    def _run(self) -> None:
        while not self._stopping.is_set():
            worked = False
            try:
                worked = self.turn()
            except PrismError as error:
                self._fail(str(error))
            except Exception as error:
                _LOG.exception("a turn of the slow lane failed, and the next one goes on")
                self._fail(f"{type(error).__name__} ended a turn of the slow lane")
            self._stopping.wait(0.0 if worked else _IDLE_SECONDS)
