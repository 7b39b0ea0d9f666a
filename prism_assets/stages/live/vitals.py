"""The figures of a live worker, read by its health server from another thread."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from prism_assets.domain.metrics import WORKER_STEPS, Sample
from prism_assets.stages.kafka.reading import SpoolFigures

_READY_SECONDS = 30.0
_LIVE_SECONDS = 900.0
"""A batch of small objects is given up after five minutes, and a turn has few of them."""


@dataclass
class StepTime:
    """How often a part of the turn ran, and for how long."""

    runs: int = 0
    seconds: float = 0.0


@dataclass
class Vitals:
    """Counts since the start. Only the loop writes them, but for `child_deaths`, which the health server fills in."""

    turns: int = 0
    """Turns without an error."""
    failed_turns: int = 0
    batches: int = 0
    lost_batches: int = 0
    """Batches that lost their lease."""
    leases_lost: int = 0
    """Leases of tables that ran out."""
    reclaimed: int = 0
    """Objects of dead batches, taken over."""
    objects: int = 0
    rows: int = 0
    quarantined: int = 0
    """Lines."""
    registered: int = 0
    tables: int = 0
    """Tables held now."""
    child_deaths: int = 0
    slow_batch_seconds: float = 0.0
    """The time of the running batch of large objects, or 0."""
    spool: SpoolFigures = field(default_factory=SpoolFigures)
    """The counts of all threads that read topics."""
    steps: dict[str, StepTime] = field(default_factory=lambda: {name: StepTime() for name in WORKER_STEPS})
    waits_for: str = ""
    """The reason why the first turn has to wait, or nothing."""
    last_turn: float = float("-inf")
    """The end of the last turn without an error, by `time.monotonic`."""
    last_sign: float = field(default_factory=time.monotonic)
    """The end of the last turn or the last look for a lake, by `time.monotonic`."""

    def turn_ended(self) -> None:
        """Notes a turn without an error."""
        self.turns += 1
        self.last_turn = self.last_sign = time.monotonic()

    def turn_failed(self) -> None:
        """Notes a turn ended by an error."""
        self.failed_turns += 1
        self.note_sign()

    def note_sign(self) -> None:
        """Notes that the loop runs, with or without success."""
        self.last_sign = time.monotonic()

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Measures a part of the turn."""
        started = time.monotonic()
        try:
            yield
        finally:
            of_step = self.steps[name]
            of_step.runs += 1
            of_step.seconds += time.monotonic() - started

    @property
    def silent_seconds(self) -> float:
        """The time since the last turn without an error."""
        return time.monotonic() - self.last_turn

    @property
    def is_fresh(self) -> bool:
        """Whether a turn without an error ended within the last half minute."""
        return self.silent_seconds < _READY_SECONDS

    @property
    def why_not_live(self) -> str:
        """The reason to start the worker again: its loop hangs. A failing loop goes on by itself."""
        silent = time.monotonic() - self.last_sign
        return f"no turn has ended for {silent:.0f} s" if silent > _LIVE_SECONDS else ""

    def samples(self) -> Iterator[Sample]:
        """Yields the figures as metrics."""
        figures = {
            "turns_total": self.turns,
            "failed_turns_total": self.failed_turns,
            "registered_objects_total": self.registered,
            "batches_total": self.batches,
            "lost_batches_total": self.lost_batches,
            "leases_lost_total": self.leases_lost,
            "reclaimed_objects_total": self.reclaimed,
            "objects_total": self.objects,
            "rows_total": self.rows,
            "quarantined_lines_total": self.quarantined,
            "child_deaths_total": self.child_deaths,
            "spooled_messages_total": self.spool.messages,
            "spool_objects_total": self.spool.objects,
            "spool_bytes_total": self.spool.content_length,
            "spool_failures_total": self.spool.failures,
            "tables": self.tables,
            "partitions": self.spool.partitions,
            "lag_offsets": self.spool.behind,
            "slow_batch_seconds": round(self.slow_batch_seconds, 3),
        }
        for name, value in figures.items():
            yield Sample(f"prism_worker_{name}", value)
        for name, of_step in self.steps.items():
            yield Sample("prism_worker_steps_total", of_step.runs, (name,))
            yield Sample("prism_worker_step_seconds_total", round(of_step.seconds, 6), (name,))
        if self.turns:
            yield Sample("prism_worker_silent_seconds", round(self.silent_seconds, 3))
