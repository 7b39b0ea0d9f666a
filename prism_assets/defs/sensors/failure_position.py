"""The cursor of run_failures, of bounded size: position among failed runs, and causes already reported."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from dagster import RunRecord

from prism_assets.alerts.message import FailedRun, Repetition

PAUSE = timedelta(hours=1)
"""Time until a cause is reported again, with the number of its further runs."""
_OVERLAP = timedelta(seconds=60)
"""Each check goes back this far, because a run's record may become visible later than its time says."""
_MOST_SEEN = 2_000
_MOST_CAUSES = 50
_LONGEST_ERROR = 200


@dataclass(frozen=True)
class Cause:
    """A cause of failed runs that was reported."""

    work: str
    error: str
    told: datetime
    more: int = 0
    """Further runs that failed of it since."""

    def is_due(self, now: datetime) -> bool:
        """Whether its pause is over. A time in the future came from a wrong clock, and proves nothing."""
        return not timedelta(0) <= now - self.told < PAUSE


@dataclass(frozen=True)
class Position:
    """The position among failed runs, and the causes of the last hour. A cause quiet for longer is reported like a new
    one.
    """

    since: datetime
    """Records from here on are checked."""
    seen: Mapping[str, datetime] = field(default_factory=dict)
    """Records already checked, by id."""
    causes: Mapping[str, Cause] = field(default_factory=dict)
    tries: int = 0
    """Attempts to send the current message."""

    @classmethod
    def read(cls, cursor: str | None, now: datetime) -> Position:
        """Reads a cursor. Without one, or from another form, starts now: earlier failures are not reported."""
        document = json.loads(cursor) if cursor else {}
        if "seen" not in document:
            return cls(now - _OVERLAP)
        seen = {run_id: datetime.fromisoformat(time) for run_id, time in document["seen"].items()}
        causes = {
            key: Cause(item["work"], item["error"], datetime.fromisoformat(item["told"]), item["more"])
            for key, item in document["causes"].items()
        }
        return cls(datetime.fromisoformat(document["since"]), seen, causes, document["tries"])

    def write(self) -> str:
        """Returns the cursor."""
        seen = {run_id: time.isoformat() for run_id, time in self.seen.items()}
        causes = {
            key: {"work": item.work, "error": item.error, "told": item.told.isoformat(), "more": item.more}
            for key, item in self.causes.items()
        }
        document = {"since": self.since.isoformat(), "seen": seen, "causes": causes, "tries": self.tries}
        return json.dumps(document, sort_keys=True)

    def behind(self, records: Sequence[RunRecord]) -> Position:
        """Returns the position after these records of any origin. Forgets ids the next check cannot meet."""
        times = {record.dagster_run.run_id: record.update_timestamp for record in records}
        seen = {**self.seen, **times}
        since = max([self.since, *(time - _OVERLAP for time in times.values())])
        kept = sorted((time, run_id) for run_id, time in seen.items() if time >= since)[-_MOST_SEEN:]
        if len(kept) == _MOST_SEEN:
            since = max(since, kept[0][0])
        return replace(self, since=since, seen={run_id: time for time, run_id in kept}, tries=0)

    def due_alerts(self, failed: Mapping[str, Sequence[FailedRun]], now: datetime) -> tuple[Alerts, Position]:
        """Returns the content of a message now, and the position after sending it."""
        new = {key: runs for key, runs in failed.items() if key not in self.causes}
        counted = {
            key: replace(cause, more=cause.more + len(failed.get(key, ()))) for key, cause in self.causes.items()
        }
        due = {key: cause for key, cause in counted.items() if cause.is_due(now)}
        again = [
            Repetition(work=cause.work, error=cause.error, runs=cause.more, since=cause.told)
            for cause in due.values()
            if cause.more
        ]
        causes = {key: cause for key, cause in counted.items() if key not in due}
        causes |= {key: replace(cause, told=now, more=0) for key, cause in due.items() if cause.more}
        causes |= {key: Cause(runs[0].work, runs[0].error[:_LONGEST_ERROR], now) for key, runs in new.items()}
        latest = sorted(causes.items(), key=lambda pair: pair[1].told)[-_MOST_CAUSES:]
        return Alerts(new, tuple(again)), replace(self, causes=dict(latest))


@dataclass(frozen=True)
class Alerts:
    """The content of a message: runs with new causes, and repetitions of reported causes."""

    new: Mapping[str, Sequence[FailedRun]]
    again: tuple[Repetition, ...]

    @property
    def runs(self) -> list[FailedRun]:
        """The new runs, the first of each cause before the others."""
        firsts = [runs[0] for runs in self.new.values()]
        return [*firsts, *(run for runs in self.new.values() for run in runs[1:])]


def cause_of(run: FailedRun) -> str:
    """Returns a key equal for runs with the same error, ignoring numbers and table names."""
    error = run.error
    for table in sorted(run.tables, key=len, reverse=True):
        error = error.replace(table, "…")
    return hashlib.sha256(f"{run.work}: {re.sub(r'[0-9]+', '#', error)}".encode()).hexdigest()[:16]
