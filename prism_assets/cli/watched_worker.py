"""What probes and Prometheus see of a live worker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prism_assets.aws_clients import REQUESTS
from prism_assets.domain.errors import PrismError
from prism_assets.domain.metrics import Measured, Sample

if TYPE_CHECKING:
    from prism_assets.engine.live import LiveEngines
    from prism_assets.metadata.database import Database
    from prism_assets.stages.live.vitals import Vitals

_DATABASE_SECONDS = 5.0


class WatchedWorker:
    """The health and the metrics of a worker."""

    def __init__(self, vitals: Vitals, engines: LiveEngines, database: Database) -> None:
        self.vitals, self._engines = vitals, engines
        self._database = database.with_deadline(lambda: _DATABASE_SECONDS)

    @property
    def why_not_live(self) -> str:
        """The reason to start the worker again, or nothing."""
        return self.vitals.why_not_live

    @property
    def why_not_ready(self) -> str:
        """The reason why no rows come from this worker now, or nothing."""
        if not self.vitals.turns:
            return self.vitals.waits_for or "no turn has ended yet"
        if not self.vitals.is_fresh:
            return f"the last turn without an error ended {self.vitals.silent_seconds:.0f} s ago"
        try:
            with self._database.begin() as connection:
                connection.exec_driver_sql("SELECT 1")
        except PrismError as error:
            return str(error)
        return ""

    def samples(self) -> Iterator[Measured]:
        """Yields the metrics of the process."""
        self.vitals.child_deaths = self._engines.deaths
        yield from self.vitals.samples()
        for labels, count in sorted(REQUESTS.read().items()):
            yield Sample("prism_requests_total", count, labels)
