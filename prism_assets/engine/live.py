"""The engines of a live worker. Each batch runs on one, so no fault of an engine is charged to work of another."""

from __future__ import annotations

from dataclasses import dataclass

from prism_assets.engine.base import Engine
from prism_assets.engine.child import ChildEngine


@dataclass(frozen=True)
class LiveEngines:
    """Two child processes for two threads, and Spark if it is set."""

    quick: ChildEngine
    """Small objects."""
    slow: ChildEngine
    """Large objects and objects of dead batches, without Spark. With Spark, small objects of dead batches while Spark
    does not answer."""
    spark: Engine | None = None

    @property
    def deaths(self) -> int:
        """Child processes that died, hung or failed over their work."""
        return self.quick.deaths + self.slow.deaths

    def close(self) -> None:
        """Ends the child processes."""
        self.quick.close()
        self.slow.close()
