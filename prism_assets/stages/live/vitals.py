"""The figures of a live worker, read by its health server from another thread."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from prism_assets.stages.kafka.reading import SpoolFigures

_READY_SECONDS = 30.0


@dataclass
class Vitals:
    """Counts since the start. Only the loop writes them, but for `child_deaths`, which the health server fills in."""

    turns: int = 0
    """Turns without an error."""
    failed_turns: int = 0
    batches: int = 0
    objects: int = 0
    rows: int = 0
    registered: int = 0
    tables: int = 0
    """Tables held now."""
    child_deaths: int = 0
    slow_batch_seconds: float = 0.0
    """The time of the running batch of large objects, or 0."""
    spool: SpoolFigures = field(default_factory=SpoolFigures)
    """The counts of all threads that read topics."""
    last_turn: float = float("-inf")
    """The end of the last turn without an error, by `time.monotonic`."""

    def turn_ended(self) -> None:
        """Notes a turn without an error."""
        self.turns += 1
        self.last_turn = time.monotonic()

    @property
    def silent_seconds(self) -> float:
        """The time since the last turn without an error."""
        return time.monotonic() - self.last_turn

    @property
    def is_fresh(self) -> bool:
        """Whether a turn without an error ended within the last half minute."""
        return self.silent_seconds < _READY_SECONDS

    def render(self) -> str:
        """Returns the figures in the text format of Prometheus."""
        counters = {
            "turns": ("turns without an error", self.turns),
            "failed_turns": ("turns ended by an error", self.failed_turns),
            "registered_objects": ("staging objects registered from messages and listings", self.registered),
            "batches": ("committed batches", self.batches),
            "objects": ("converted staging objects", self.objects),
            "rows": ("rows of converted staging objects", self.rows),
            "child_deaths": ("child processes that died over their work", self.child_deaths),
            "spooled_messages": ("messages of topics committed with their offsets", self.spool.messages),
            "spool_objects": ("committed spool objects", self.spool.objects),
            "spool_bytes": ("bytes of committed spool objects", self.spool.content_length),
            "spool_failures": ("failed flushes and looks at brokers", self.spool.failures),
        }
        lines = [
            line
            for name, (about, value) in counters.items()
            for line in (
                f"# HELP prism_worker_{name}_total Number of {about}.",
                f"# TYPE prism_worker_{name}_total counter",
                f"prism_worker_{name}_total {value}",
            )
        ]
        gauges = {
            "tables": ("Tables held by this worker.", str(self.tables)),
            "partitions": ("Partitions of topics read by this worker.", str(self.spool.partitions)),
            "lag_offsets": ("Offsets from their positions to their last stable offsets.", str(self.spool.behind)),
            "slow_batch_seconds": ("Time of the running batch of large objects.", f"{self.slow_batch_seconds:.3f}"),
        }
        if self.turns:
            gauges["silent_seconds"] = ("Time since the last turn without an error.", f"{self.silent_seconds:.3f}")
        for name, (about, shown) in gauges.items():
            lines += [
                f"# HELP prism_worker_{name} {about}",
                f"# TYPE prism_worker_{name} gauge",
                f"prism_worker_{name} {shown}",
            ]
        return "\n".join(lines) + "\n"
