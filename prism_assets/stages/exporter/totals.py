"""Work done since the exporter started, as counters.

PostgreSQL has no running sums, and a sum over all objects would take minutes. So each look adds the work that ended
since the last one, by indexes.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime, timedelta

from sqlalchemy import Connection

from prism_assets.domain.metrics import LATENCY_BOUNDS, Distribution, Measured, Sample
from prism_assets.metadata.files.merge_figures import sum_merges
from prism_assets.metadata.intake.intake_figures import Conversions, Mark, mark_now, sum_batches, sum_conversions

_SETTLED = timedelta(seconds=20)
"""Work is counted after this time. A commit becomes visible some milliseconds after its own time."""
_LONGEST = timedelta(hours=1)
"""After a longer pause, work before this time is not counted, so that a look stays short."""
_OUTCOMES = {"done": "done", "dead": "lease_lost"}

Key = tuple[str, tuple[str, ...]]


class Totals:
    """Counters by metric and labels. `add_work` brings them up to date."""

    def __init__(self) -> None:
        self._counts: Counter[Key] = Counter()
        self._seconds: dict[Key, float] = {}
        self._latency: dict[str, list[int]] = {}
        self._marks: deque[Mark] = deque()
        self._until: datetime | None = None

    def add_work(self, connection: Connection, names: Mapping[int, str]) -> None:
        """Adds the work that ended since the last call. Counts the tables in `names`, by id, and forgets all others."""
        present = mark_now(connection)
        self._marks.append(present)
        if self._until is None:
            self._until = present.time
        after = max(self._until, present.time - _LONGEST)
        until = present.time - _SETTLED
        self._forget(self._latency.keys() - set(names.values()))
        for name in names.values():
            self._begin(name)
        if until <= after:
            return
        mark = self._mark_before(after)
        # All statements come first: after a failed one the next call counts the same span.
        conversions = sum_conversions(connection, list(names), LATENCY_BOUNDS, after, until)
        ended = sum_batches(connection, mark, after, until)
        merged = sum_merges(connection, mark.merge_log_id, after, until)
        for done in conversions:
            self._add_conversions(names[done.table_id], done)
        for batches in ended:
            self._add_step("stream", _OUTCOMES[batches.state], batches.batches, batches.seconds)
        for merges in merged:
            self._add_step("merge", "done", merges.merges, merges.seconds)
            self._add_step("merge", "failed", merges.failed, 0.0)
            if merges.table_id in names:
                labels = (names[merges.table_id],)
                self._counts["prism_table_merged_rows_total", labels] += merges.rows
                self._counts["prism_table_merged_bytes_total", labels] += merges.bytes
        self._until = until

    def samples(self) -> Iterator[Measured]:
        """Yields the counters."""
        for (name, labels), count in self._counts.items():
            yield Sample(name, count, labels)
        for (name, labels), seconds in self._seconds.items():
            if name != "prism_table_latency_seconds":
                yield Sample(name, seconds, labels)
        for table, counts in self._latency.items():
            total = self._seconds["prism_table_latency_seconds", (table,)]
            yield Distribution("prism_table_latency_seconds", tuple(counts), total, (table,))

    def _begin(self, table: str) -> None:
        """Begins the counters of a table at 0. Prometheus sees no increase in a series that begins at N."""
        for name in _OF_TABLES:
            self._counts[name, (table,)] += 0
        self._seconds.setdefault(("prism_table_latency_seconds", (table,)), 0.0)
        self._latency.setdefault(table, [0] * (len(LATENCY_BOUNDS) + 1))
        for step, outcome in (("stream", "done"), ("stream", "lease_lost"), ("merge", "done"), ("merge", "failed")):
            self._add_step(step, outcome, 0, 0.0)

    def _forget(self, tables: Collection[str]) -> None:
        """Ends the counters of dropped and renamed tables, so that their number stays bounded."""
        for table in tables:
            for name in _OF_TABLES:
                del self._counts[name, (table,)]
            del self._seconds["prism_table_latency_seconds", (table,)], self._latency[table]

    def _mark_before(self, after: datetime) -> Mark:
        """Returns the latest mark that is not later than `after`, and forgets earlier ones."""
        while len(self._marks) > 1 and self._marks[1].time <= after:
            self._marks.popleft()
        return self._marks[0]

    def _add_conversions(self, table: str, done: Conversions) -> None:
        figures = (done.objects, done.bytes, done.lines, done.rows, done.quarantined, done.filtered)
        for name, figure in zip(_OF_CONVERSIONS, figures, strict=True):
            self._counts[name, (table,)] += figure
        self._seconds["prism_table_latency_seconds", (table,)] += done.seconds
        self._latency[table] = [before + more for before, more in zip(self._latency[table], done.within, strict=True)]

    def _add_step(self, step: str, outcome: str, runs: int, seconds: float) -> None:
        key = "prism_step_seconds_total", (step,)
        self._counts["prism_step_runs_total", (step, outcome)] += runs
        self._seconds[key] = self._seconds.get(key, 0.0) + seconds


_OF_CONVERSIONS = tuple(
    f"prism_table_{name}_total"
    for name in ("objects", "object_bytes", "lines", "rows", "quarantined_lines", "filtered_lines")
)
_OF_TABLES = (*_OF_CONVERSIONS, "prism_table_merged_rows_total", "prism_table_merged_bytes_total")
