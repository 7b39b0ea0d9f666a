"""Turns work into run requests: one per time zone, for all its tables at once, without a run key.

A run key per table and day would drop repeated requests silently. Requests stay distinct because work already in a run
is skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timezone

from dagster import DagsterInstance, RunRequest, SensorEvaluationContext, SensorResult, SkipReason

from prism_assets.defs.failures import sentence_alone
from prism_assets.defs.keys import DAY_TAG, PRIORITY_TAG, STAGE_TAG, Stage, asset_key, daily, has_day
from prism_assets.defs.location import Location
from prism_assets.defs.resources import PlatformResource
from prism_assets.defs.sensors.in_flight import InFlight, find_in_flight
from prism_assets.domain.errors import PrismError, TransientError
from prism_assets.domain.findings import Finding
from prism_assets.domain.text import counted
from prism_assets.stages.context import StageContext
from prism_assets.stages.deadlines import Deadline

Tick = Callable[[StageContext, SensorEvaluationContext, Location, Deadline], SensorResult]

BUDGET_SECONDS = 20.0
"""The longest time of a tick, including settings and table files."""


def run_tick(
    context: SensorEvaluationContext, platform: PlatformResource, location: Location, tick: Tick
) -> SensorResult:
    """Runs a tick within its budget.

    A server that does not answer becomes the reason for no request, and the next tick asks it again. An error that
    needs a person, such as wrong settings, fails the tick, so that people see it.
    """
    deadline, problems = Deadline.after(BUDGET_SECONDS), list[str]()

    def warn(message: str) -> None:
        context.log.warning(message)
        problems.append(message)

    try:
        with platform.open(location, context.log.info, warn, deadline=deadline) as stages:
            return _with_problems(tick(stages, context, location, deadline), problems)
    except TransientError as error:
        over = f"the {BUDGET_SECONDS:.0f} s of a tick were over: " if deadline.is_over else ""
        return SensorResult(skip_reason=SkipReason(f"{over}{error}"), cursor=context.cursor)
    except PrismError as error:
        failure = sentence_alone(str(error), "FailedTick")
    raise failure


def _with_problems(result: SensorResult, problems: Sequence[str]) -> SensorResult:
    """Adds problems of table files to the reason of a skipped tick. The log of each tick has them, too."""
    if not problems or result.skip_reason is None:
        return result
    more = f" (and {len(problems) - 1} more problems, in the log of this tick)" if len(problems) > 1 else ""
    told = f"{result.skip_reason.skip_message}; {problems[0]}{more}"
    return result._replace(skip_reason=SkipReason(told))


@dataclass(frozen=True)
class PendingDays:
    """Work of one stage: waiting days by table. The priority defaults to that of the stage."""

    stage: Stage
    days: Mapping[str, Collection[date]]
    other_priority: int | None = None

    @property
    def priority(self) -> int:
        """The place of its runs in the queue. Higher goes first."""
        return self.stage.priority if self.other_priority is None else self.other_priority


def days_of(findings: Iterable[Finding], today: Mapping[str, date]) -> dict[str, set[date]]:
    """Returns the days of findings by table. A finding of a whole table counts for its today."""
    days: dict[str, set[date]] = {}
    for item in findings:
        if item.table is not None and item.table in today:
            days.setdefault(item.table, set()).add(item.date or today[item.table])
    return days


@dataclass(frozen=True)
class RequestedRuns:
    """Requested runs, and a sentence about other waiting work."""

    requests: tuple[RunRequest, ...]
    rest: str

    def result(self, context: SensorEvaluationContext, *parts: str) -> SensorResult:
        """Returns the result of a tick. Logs `parts` if the tick requests runs; otherwise they are its skip reason."""
        reason = "; ".join(filter(None, [*parts, self.rest]))
        if not self.requests:
            return SensorResult(skip_reason=SkipReason(reason))
        context.log.info(reason)
        return SensorResult(run_requests=list(self.requests))


def request_runs(pending: PendingDays, location: Location, instance: DagsterInstance) -> RequestedRuns:
    """Requests runs for waiting work that is in no run yet.

    A zone with a queued or just started run gets no further run, unless the work is more urgent. A run costs a process
    for any number of tables, so under load runs must grow instead of multiplying.
    """
    runs = find_in_flight(instance, pending.stage) if pending.days else InFlight()
    busy = runs.busy(pending.priority)
    resting = runs.resting - busy
    known = set(location.names(pending.stage))
    free = {table for table in pending.days if table in known - busy - resting}
    behind = free & _behind(runs.waiting_or_just_begun(pending.priority), location)
    requests = tuple(_requests(pending, free - behind, location))
    return RequestedRuns(requests, _rest(pending, busy, resting, known, behind))


def _behind(tables_of_runs: Collection[str], location: Location) -> set[str]:
    """Returns all tables in the time zones of these tables. They wait for the zone's present run."""
    zones = [{str(table.name) for table in tables} for tables in location.zones().values()]
    return {table for names in zones if not names.isdisjoint(tables_of_runs) for table in names}


def _requests(pending: PendingDays, free: Collection[str], location: Location) -> Iterator[RunRequest]:
    for zone, tables in location.zones().items():
        chosen = sorted(str(table.name) for table in tables if str(table.name) in free)
        if not chosen:
            continue
        today = tables[0].today(datetime.now(timezone.utc))
        days = daily(location.first_day, zone)
        waiting = {day for table in chosen for day in pending.days[table]}
        day = max((day for day in waiting if has_day(days, day)), default=today)
        if not has_day(days, day):
            continue  # the first day is still to come
        yield RunRequest(
            asset_selection=[asset_key(table, pending.stage.value) for table in chosen],
            # Before a run starts, Dagster records each planned check, which takes longer than the run. The step
            # runs the checks all the same, and reports failures.
            asset_check_keys=[],
            partition_key=day.isoformat(),
            tags={
                STAGE_TAG: pending.stage.value,
                DAY_TAG: day.isoformat(),
                PRIORITY_TAG: str(pending.priority),
            },
        )


def _rest(
    pending: PendingDays,
    busy: Collection[str],
    resting: Collection[str],
    known: Collection[str],
    behind: Collection[str],
) -> str:
    waiting = set(pending.days)
    parts = [
        (len(waiting & set(busy)), "in a run that is queued or running"),
        (len(behind), "behind a run that waits for its turn or has just begun"),
        (len(waiting & set(resting)), "paused after a failure"),
    ]
    told = [f"{counted(count, 'table')} {why}" for count, why in parts if count]
    if unknown := sorted(waiting - set(known)):
        is_or_are = "is" if len(unknown) == 1 else "are"
        told.append(f"{', '.join(unknown)} {is_or_are} not in the loaded definitions: reload them in Dagster")
    return ", ".join(told)
