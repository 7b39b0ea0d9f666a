"""The loop of a live worker: turn after turn, until it is told to stop.

A turn beats, takes in new objects, converts the small ones, and publishes days with their first rows. Large objects
and objects of dead batches are converted beside the loop (`slow_lane`). Merges, closes, switches, folds and Iceberg
stay with sensors and `prism run`. A death at any point is harmless: after the lease of the batch, the next run of the
stage takes the objects over.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from datetime import datetime

from prism_assets.domain.errors import PrismError
from prism_assets.domain.problems import Problem
from prism_assets.domain.text import counted
from prism_assets.engine.live import LiveEngines
from prism_assets.json_logs import log_fields
from prism_assets.metadata.schema_version import load_schema_version
from prism_assets.settings import Settings
from prism_assets.stages.context import StageContext
from prism_assets.stages.deadlines import Deadline
from prism_assets.stages.discover.listings import run_listings
from prism_assets.stages.discover.messages import run_receive
from prism_assets.stages.drift import evolve_tables
from prism_assets.stages.kafka.lanes import SpoolLanes
from prism_assets.stages.live import convert
from prism_assets.stages.live.convert import Converted
from prism_assets.stages.live.holdings import LIVE_SECONDS, Holdings
from prism_assets.stages.live.new_days import NewDays
from prism_assets.stages.live.slow_lane import SlowLane
from prism_assets.stages.live.vitals import Vitals
from prism_assets.stages.stream.commit import reclaim_expired
from prism_assets.stages.stream.report import StreamReport
from prism_assets.stages.stream.run import discard_new, retry_given_up
from prism_assets.stages.stream.uploads import remove_abandoned

_LOG = logging.getLogger(__name__)
_BEAT_SECONDS = LIVE_SECONDS / 3
_UPKEEP_SECONDS = 10.0
_RECEIVE_SECONDS = 1.05
"""The time of one call to the queues. SQS waits for whole seconds only."""
_SILENT_QUEUE_SECONDS, _QUEUE_REST_SECONDS = 3.0, 10.0
"""A failed call that took longer than the first makes the queues rest for the second. Listings find the objects."""
_CONVERT_SECONDS = 5.0
"""A turn under a backlog converts for this time. The next turn then takes in new objects first."""
_TOLD_SECONDS, _MOST_TOLD = 600.0, 1_000
"""A repeated error is printed again after this time."""
_LONG_BATCH_SECONDS = 900.0
"""A batch of the slow lane that takes longer is reported."""
_PAUSE_SECONDS = 0.2
"""The pause after a turn without a batch. Other processes may register objects meanwhile."""
_LONGEST_PAUSE_SECONDS = 10.0
"""The longest pause between failed turns, which doubles with each of them."""
_MOST_FAILURES, _REST_SECONDS = 5, 60.0
"""After five failed turns in a row the worker releases its tables and rests for a minute."""

_SPOOL_STOP_SECONDS = 5.0
"""The time of a flush to end after a signal. Its messages are read again otherwise."""

STOP_SECONDS = 20
"""The time of a batch to end after a signal; then it is released. Service managers usually kill after 30 s."""


class WorkerStopped(BaseException):
    """Ends the batch of a worker that was told to stop and took too long. The batch is released."""


@dataclass(frozen=True, kw_only=True)
class LiveOptions:
    """The settings of one worker."""

    names: Collection[str] | None = None
    """Only these tables, or None for all."""
    list_seconds: float = 10.0
    """Seconds between listings of a stream without queues, or while a queue does not answer."""
    spark_settings: Settings | None = None
    """Limits of batches on Spark, or None for the limits of the others. No small object waits for a batch on Spark."""


class _Timer:
    """Says when something is due again. It is due at first."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._next = seconds, 0.0

    def is_due(self) -> bool:
        """Whether the time is over. Starts it again if so."""
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + self._seconds
        return True


class LiveWorker:
    """One worker, in one thread."""

    def __init__(
        self,
        context: StageContext,
        options: LiveOptions,
        *,
        clock: Callable[[], datetime],
        engines: LiveEngines | None = None,
        tell: Callable[[str], None] = lambda _message: None,
        vitals: Vitals | None = None,
    ) -> None:
        """The engine of `context` converts small objects. Without `engines` it converts the others, too.

        `tell` prints lines for operators.
        """
        self._context, self._options, self._clock = context, options, clock
        slow, spark = (engines.slow, engines.spark) if engines else (None, None)
        self.slow_lane = SlowLane(context, slow, spark, clock, spark_settings=options.spark_settings)
        self._tell, self.vitals = tell, vitals or Vitals()
        self._holdings, self._new_days = Holdings(context, options.names), NewDays()
        self._spool = SpoolLanes(context, self._holdings.worker, clock, lambda: self._holdings.wanted)
        self._beat, self._upkeep, self._schema = _Timer(_BEAT_SECONDS), _Timer(_UPKEEP_SECONDS), _Timer(_UPKEEP_SECONDS)
        self._listing, self._topics = _Timer(options.list_seconds), _Timer(_UPKEEP_SECONDS)
        self._receive_again, self._queues_failed = 0.0, False
        self._told: dict[str, float] = {}

    def run(self, stopping: threading.Event) -> None:
        """Takes turns until `stopping` is set, or the schema is too new for the code. Releases its leases at the end.

        An error never ends the loop. The next turn comes after a pause that doubles with each failure. After five
        failures in a row the worker releases its tables, because the fault may lie in its own machine.
        """
        self.slow_lane.start()
        try:
            self._take_turns(stopping)
            self._spool.stop(_SPOOL_STOP_SECONDS)
            self.slow_lane.stop(STOP_SECONDS)
            self._new_days.finish(STOP_SECONDS)
        except BaseException:
            self._spool.stop(0.0)
            self.slow_lane.stop(0.0)
            raise
        finally:
            self._new_days.close()
            self._holdings.release()

    def _take_turns(self, stopping: threading.Event) -> None:
        pause, failures = _PAUSE_SECONDS, 0
        while not stopping.is_set():
            try:
                if self._is_too_old():
                    return
                worked = self.turn(stopping)
                pause, failures = (0.0 if worked else _PAUSE_SECONDS), 0
            except Exception as error:
                self._fail(error)
                failures += 1
                pause = min(2.0 ** (failures - 1), _LONGEST_PAUSE_SECONDS)
                if failures % _MOST_FAILURES == 0:
                    self._release()
                    pause = _REST_SECONDS
            stopping.wait(pause)

    def turn(self, stopping: threading.Event) -> bool:
        """Takes one turn. Returns whether it converted anything."""
        before, deadline = self.vitals.batches, Deadline.after(_CONVERT_SECONDS)
        self._beat_if_due()
        self._spool_topics()
        self._note_slow()
        if self._holdings.tables:
            with self.vitals.step("intake"):
                self._take_in(self._clock())
            self._beat_if_due()
            if self._upkeep.is_due():
                with self.vitals.step("upkeep"):
                    self._keep_up(self._clock())
                self._beat_if_due()
            while not (stopping.is_set() or deadline.is_over) and self._convert(self._clock()):
                self._publish()
                self._beat_if_due()
            self._publish()
        self.vitals.turn_ended()
        return self.vitals.batches > before

    def _spool_topics(self) -> None:
        """Lets threads read topics. They need no table of this worker: any worker may read any partition."""
        if self._topics.is_due():
            self._spool.keep()
        self.vitals.spool = self._spool.figures
        self._report(self._spool.collect())

    def _is_too_old(self) -> bool:
        """Whether the schema is too new for this code. A schema of the next release is told, and the worker goes on."""
        if not self._schema.is_due():
            return False
        with self._context.database.begin() as connection:
            version = load_schema_version(connection)
        if version.notice:
            self._report([version.notice])
        if version.too_new:
            self._tell(f"{version.too_new}; the worker ends and releases its tables")
        return version.too_new is not None

    def _beat_if_due(self) -> None:
        """Renews the leases. Only this loop does: while it hangs, the leases run out and sensors take over."""
        if not self._beat.is_due():
            return
        before = self._holdings.tables
        with self.vitals.step("beat"):
            self._holdings.beat()
        held = self._holdings.tables
        self.vitals.leases_lost = self._holdings.lost
        self.slow_lane.tables = tuple(held)
        self.vitals.tables = len(held)
        if held.keys() != before.keys():
            self._tell(f"holds {counted(len(held), 'table')}: {', '.join(held.values()) or 'others have them'}")
            self._listing = _Timer(self._options.list_seconds)

    def _take_in(self, now: datetime) -> None:
        """Registers new objects: from messages, then from due listings.

        Every worker receives messages of all tables. Each lists its own tables only.
        """
        errors = self._receive(now) if self._context.queues else ()
        has_messages = self._context.queues and not self._queues_failed
        every = self._context.settings.sqs_listing_seconds if has_messages else 0.0
        if self._listing.is_due():
            names = list(self._holdings.tables.values())
            deadline = Deadline.after(LIVE_SECONDS / 2)
            listed = run_listings(self._context, now=now, names=names, every_seconds=every, deadline=deadline)
            self.vitals.registered += listed.new
            errors += listed.errors
        self._report(errors)

    def _receive(self, now: datetime) -> tuple[str, ...]:
        """Registers objects of messages. A silent queue takes seconds for each receipt, so it is asked less often."""
        started = time.monotonic()
        if started < self._receive_again:
            return ()
        received = run_receive(self._context, now=now, deadline=Deadline.after(_RECEIVE_SECONDS))
        self.vitals.registered += received.registered
        self._queues_failed = bool(received.errors)
        ended = time.monotonic()
        if received.errors and ended - started > _SILENT_QUEUE_SECONDS:
            self._receive_again = ended + _QUEUE_REST_SECONDS
        self._beat_if_due()
        return received.errors

    def _keep_up(self, now: datetime) -> None:
        """Every ten seconds: takes over dead batches and unpublished days, restarts objects, and adds columns."""
        context, (ids, held) = self._context, convert.sound_tables(self._context, self._holdings.tables)
        self._report(held)
        self._new_days.adopt(context, self._holdings.tables)  # also days that another worker committed after a move
        report = reclaim_expired(context)
        self.vitals.reclaimed += report.reclaimed
        report += retry_given_up(context, ids)
        report += discard_new(context, ids)
        evolved = evolve_tables(context, ids, now)
        self._report((*report.problems, *evolved))

    def _convert(self, now: datetime) -> bool:
        """Runs one batch of small objects. Returns False if none is pending."""
        claimed = convert.start(self._context, convert.QUICK, self._holdings.tables)
        self._report(claimed.held)
        if claimed.plan is None:
            return False
        with self.vitals.step("convert"):
            converted = convert.finish(self._context, claimed.plan, claimed.table_ids, now)
        self._note(converted)
        return True

    def _note_slow(self) -> None:
        for converted in self.slow_lane.collect():
            self._note(converted)
        self.vitals.slow_batch_seconds = self.slow_lane.busy_seconds
        if self.vitals.slow_batch_seconds > _LONG_BATCH_SECONDS:
            self._report(["a batch of large objects has run for a quarter of an hour: look for its job in Spark's UI"])

    def _note(self, converted: Converted) -> None:
        """Notes the end of a batch. The days come first, so that no later failure loses them."""
        report = converted.report
        self._new_days.add((change.table_id, change.date) for change in report.changes)
        self.vitals.batches += report.batches
        self.vitals.objects += report.objects
        self.vitals.rows += report.rows_out
        self.vitals.quarantined += report.quarantined
        self.vitals.lost_batches += converted.lost_batches
        with log_fields(batch=", ".join(map(str, report.batch_ids)) or None):
            self._log_rows(report)
            self._report(converted.errors)
            self._report(report.problems)
        if report.retried or report.problems:
            self._report(remove_abandoned(self._context, converted.table_ids))

    def _log_rows(self, report: StreamReport) -> None:
        """Logs the rows of a batch, a line for each table and day. Only logs in JSON show lines of this level."""
        names = self._holdings.tables
        for change in report.changes:
            with log_fields(table=names.get(change.table_id), day=change.date):
                _LOG.info(f"{counted(change.rows, 'row')} of {counted(change.objects, 'object')} committed")

    def _publish(self) -> None:
        self._report(self._new_days.publish(self._context, self._holdings.tables, self._clock()))

    def _release(self) -> None:
        self._holdings.release()
        self.slow_lane.tables = ()
        self.vitals.tables, self._beat = 0, _Timer(_BEAT_SECONDS)

    def _fail(self, error: Exception) -> None:
        self.vitals.turn_failed()
        if isinstance(error, PrismError):
            self._report([str(error)])
        else:
            _LOG.exception("a turn of the worker failed; its batch keeps its lease, and the next turn goes on")

    def _report(self, errors: Iterable[str | Problem]) -> None:
        """Prints each error once in `_TOLD_SECONDS`."""
        now = time.monotonic()
        for item in errors:
            error = item.reason if isinstance(item, Problem) else item
            if self._told.get(error, float("-inf")) < now - _TOLD_SECONDS:
                place = {"table": item.table, "day": item.date} if isinstance(item, Problem) else {}
                with log_fields(**place):
                    self._tell(error)
                self._told[error] = now
        if len(self._told) > _MOST_TOLD:
            self._told.clear()
