"""The spoolers of a live worker: a thread for each cluster, so a silent one holds up no other and no conversion."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import fields
from datetime import datetime

from prism_assets.domain.errors import PrismError
from prism_assets.stages.context import StageContext
from prism_assets.stages.kafka.reading import SpoolFigures
from prism_assets.stages.kafka.register import note_fault
from prism_assets.stages.kafka.sources import load_sources
from prism_assets.stages.kafka.spooler import Spooler

_LOG = logging.getLogger(__name__)
_LONGEST_PAUSE_SECONDS = 30.0
_MOST_ERRORS = 1_000


class SpoolLanes:
    """Starts a thread for each cluster with topics. The loop of the worker calls `keep` and `collect`."""

    def __init__(
        self,
        context: StageContext,
        worker: str,
        clock: Callable[[], datetime],
        wanted: Callable[[], Collection[int] | None],
    ) -> None:
        self._context, self._worker, self._clock, self._wanted = context, worker, clock, wanted
        self._lanes: dict[str, _Lane] = {}
        self._errors: queue.SimpleQueue[str] = queue.SimpleQueue()

    def keep(self) -> None:
        """Starts threads of new clusters. A cluster without connection settings is reported for its streams."""
        sources = load_sources(self._context, self._wanted())
        for cluster in {source.topic.cluster for source in sources} - self._lanes.keys():
            try:
                self._context.kafka.of(cluster)
            except PrismError as error:
                own = [source for source in sources if source.topic.cluster == cluster]
                note_fault(self._context, own, error, self._clock())
                self._report(str(error))
                continue
            lane = _Lane(self._context, cluster, self._worker, self._clock, self._wanted, self._report)
            self._lanes[cluster] = lane
            lane.start()

    def collect(self) -> list[str]:
        """Returns the errors since the last call, a sentence each."""
        found = []
        while not self._errors.empty():
            found.append(self._errors.get())
        return found

    @property
    def figures(self) -> SpoolFigures:
        """Returns the counts of all clusters."""
        lanes = list(self._lanes.values())
        names = [field.name for field in fields(SpoolFigures)]
        return SpoolFigures(**{name: sum(getattr(lane.figures, name) for lane in lanes) for name in names})

    def stop(self, seconds: float) -> None:
        """Flushes and gives partitions back. Threads that take longer are left alone: their leases run out."""
        deadline = time.monotonic() + seconds
        for lane in self._lanes.values():
            lane.stopping.set()
        for lane in self._lanes.values():
            lane.join(max(0.0, deadline - time.monotonic()))

    def _report(self, error: str) -> None:
        if self._errors.qsize() < _MOST_ERRORS:
            self._errors.put(error)


class _Lane:
    """The thread of one cluster."""

    def __init__(
        self,
        context: StageContext,
        cluster: str,
        worker: str,
        clock: Callable[[], datetime],
        wanted: Callable[[], Collection[int] | None],
        report: Callable[[str], None],
    ) -> None:
        self._make: Callable[[], Spooler] = lambda: Spooler(
            context, context.kafka.of(cluster), worker, clock=clock, wanted=wanted
        )
        self._report = report
        self.figures = SpoolFigures()
        self.stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"prism-kafka-{cluster}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def join(self, seconds: float) -> None:
        self._thread.join(seconds)

    def _run(self) -> None:
        """Takes turns. After an error everything in memory is dropped: the next reader begins at committed offsets."""
        failures = 0
        while not self.stopping.is_set():
            spooler = self._make()
            spooler.figures = self.figures
            try:
                while not self.stopping.is_set():
                    spooler.turn()
                    self._report_errors_of(spooler)
                    failures = 0
                spooler.stop()
            except PrismError as error:
                self._report(str(error))
            except Exception as error:
                _LOG.exception("a turn of the spooler failed, and it begins again at the committed offsets")
                self._report(f"{type(error).__name__} ended a turn of the spooler")
            self._end(spooler)
            failures += 1
            self.stopping.wait(min(2.0 ** (failures - 1), _LONGEST_PAUSE_SECONDS))

    def _end(self, spooler: Spooler) -> None:
        self._report_errors_of(spooler)
        try:
            spooler.close()
        except PrismError as error:
            self._report(str(error))
        self.figures.partitions = self.figures.behind = 0

    def _report_errors_of(self, spooler: Spooler) -> None:
        for error in spooler.errors:
            self._report(error)
        spooler.errors.clear()
