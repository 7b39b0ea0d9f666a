"""The exporter: looks at PostgreSQL in turns, and keeps the last answers in memory for `/metrics`.

Scrapes read memory, so a slow database delays no scraper, and many scrapers cost the database nothing. The look
`tables` reads waiting and finished work. The look `attention` reads findings and checks, less often.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from prism_assets.domain.errors import PrismError
from prism_assets.domain.metrics import MOST_TABLES, Measured, Sample
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.metadata.schema_version import load_schema_version
from prism_assets.stages.apply.files import parse_table_files
from prism_assets.stages.context import StageContext
from prism_assets.stages.exporter.attention import count_failed_checks, count_findings
from prism_assets.stages.exporter.last_rows import LastRows
from prism_assets.stages.exporter.present import measure_present
from prism_assets.stages.exporter.totals import Totals
from prism_assets.stages.installation import check_place

_LOG = logging.getLogger(__name__)
LOOK_SECONDS, ATTENTION_SECONDS = 10.0, 60.0
_KEPT_SECONDS = 600.0
"""After failed looks the last answers stay for this time, so that a failure neither clears nor fires an alert."""
_LIVE_SECONDS = 300.0
"""Without a look for this time the process counts as hanging."""

LookName = Literal["tables", "attention"]


@dataclass(frozen=True)
class _Answer:
    """The outcome of the last look of a name."""

    values: Sequence[Measured]
    succeeded: float
    """By `time.monotonic`."""
    time: datetime


class Exporter:
    """The loop runs in one thread. Other threads read `samples` and the reasons."""

    def __init__(
        self, context: StageContext, *, clock: Callable[[], datetime], tell: Callable[[str], None] = lambda _text: None
    ) -> None:
        self._context, self._clock, self._tell = context, clock, tell
        self._totals = Totals()
        self._last_rows = LastRows()
        self._answers: dict[LookName, _Answer] = {}
        self._figures: dict[LookName, tuple[float, bool]] = {}
        self._errors: dict[LookName, str] = {}
        self._beat = time.monotonic()

    def run(self, stopping: threading.Event) -> None:
        """Looks until `stopping` is set. A failed look is reported once, and does not stop the loop."""
        next_attention = 0.0
        while not stopping.is_set():
            started = time.monotonic()
            self.look("tables")
            if started >= next_attention:
                self.look("attention")
                next_attention = started + ATTENTION_SECONDS
            stopping.wait(max(0.0, started + LOOK_SECONDS - time.monotonic()))

    def look(self, name: LookName) -> None:
        """Takes one look, and keeps the answer or the error."""
        started = time.monotonic()
        try:
            values = list(self._tables() if name == "tables" else self._attention())
        except Exception as error:
            self._fail(name, error)
        else:
            if self._errors.pop(name, None):
                self._tell(f"the look at {name} succeeds again")
            self._answers[name] = _Answer(values, time.monotonic(), self._clock())
        self._beat = time.monotonic()
        self._figures[name] = self._beat - started, name not in self._errors

    def samples(self) -> Iterable[Measured]:
        """Yields all metrics, from the last looks that succeeded, and how the looks went."""
        now = time.monotonic()
        for name, answer in tuple(self._answers.items()):
            if now - answer.succeeded < _KEPT_SECONDS:
                yield from answer.values
            yield Sample("prism_exporter_last_look_timestamp_seconds", answer.time.timestamp(), (name,))
        for name, (seconds, is_up) in tuple(self._figures.items()):
            yield Sample("prism_exporter_up", 1 if is_up else 0, (name,))
            yield Sample("prism_exporter_look_seconds", seconds, (name,))

    @property
    def why_not_ready(self) -> str:
        """The reason why the metrics are missing or old, or nothing."""
        if missing := [name for name in ("tables", "attention") if name not in self._figures]:
            return f"no look at {missing[0]} has ended yet"
        return "; ".join(dict.fromkeys(self._errors.values()))

    @property
    def why_not_live(self) -> str:
        """The reason to start the exporter again, or nothing."""
        silent = time.monotonic() - self._beat
        return f"no look has ended for {silent:.0f} s" if silent > _LIVE_SECONDS else ""

    def _chosen(self) -> tuple[list[TableDefinition], int]:
        """Returns the tables with metrics, and the number of all others.

        Raises WrongLake where the settings name another lake, whose people would read these metrics as their own.
        """
        check_place(self._context.database, self._context.lake)
        found = sorted(self._context.choose_tables(None), key=lambda table: str(table.name))
        return found[:MOST_TABLES], max(0, len(found) - MOST_TABLES)

    def _tables(self) -> Iterable[Measured]:
        tables, left_out = self._chosen()
        yield Sample("prism_exporter_tables", len(tables))
        yield Sample("prism_exporter_tables_left_out", left_out)
        with self._context.database.repeatable_read() as connection:
            load_schema_version(connection).check()
            yield from measure_present(connection, tables, self._context.settings.lease_seconds, self._last_rows)
            self._totals.add_work(connection, {table.table_id: str(table.name) for table in tables})
        yield from self._totals.samples()

    def _attention(self) -> Iterable[Measured]:
        tables, _ = self._chosen()
        limits, now = {}, self._clock()
        names = {str(table.name) for table in tables}
        for table in self._of_files():
            limits[str(table.name)] = table.limits
            if table.freshness and str(table.name) in names:
                seconds = table.freshness.fail.total_seconds()
                yield Sample("prism_table_freshness_limit_seconds", seconds, (str(table.name),))
        yield from count_findings(self._context, names, now)
        yield from count_failed_checks(self._context, tables, limits, now)

    def _of_files(self) -> Sequence[TableDefinition]:
        """Returns the tables of the files, if there are any here. PostgreSQL knows no limits and no freshness."""
        folder = self._context.settings.tables_dir
        return parse_table_files(folder)[0] if folder.is_dir() else ()

    def _fail(self, name: LookName, error: Exception) -> None:
        reason = str(error)
        if not isinstance(error, PrismError):
            _LOG.exception("a look of the exporter failed; the next look comes in its turn")
            reason = f"{type(error).__name__}: {error}"
        if reason not in self._errors.values():
            self._tell(f"the look at {name} failed: {reason}")
        self._errors[name] = reason
