"""How far failed runs were looked at, and which of their causes were told when: the cursor of run_failures, bounded."""

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
"""A cause that was told is told again no sooner, with the number of runs that failed of it meanwhile."""
_OVERLAP = timedelta(seconds=60)
"""How far back is looked again: a run's record may become visible later than its time says."""
_MOST_SEEN = 2_000
_MOST_CAUSES = 50
_LONGEST_ERROR = 200


@dataclass(frozen=True)
class Cause:
    """Why runs failed, told at some time, and how many failed of it since."""

    work: str
    error: str
    told: datetime
    more: int = 0

    def is_due(self, now: datetime) -> bool:
        """Whether its pause is over. A time to come was set by a clock that went wrong, and proves nothing."""
        return not timedelta(0) <= now - self.told < PAUSE


@dataclass(frozen=True)
class Position:
    """Records are looked at from `since` on, but for those `seen`, by id; `tries` are those of the message due.

    `causes` are those of the last hour: a cause that was quiet for as long is told anew like any other.
    """

    since: datetime
    seen: Mapping[str, datetime] = field(default_factory=dict)
    causes: Mapping[str, Cause] = field(default_factory=dict)
    tries: int = 0

    @classmethod
    def read(cls, cursor: str | None, now: datetime) -> Position:
        """From a cursor; without one, or from one of another form, from now on: what was before is not told."""
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
        """As a cursor."""
        seen = {run_id: time.isoformat() for run_id, time in self.seen.items()}
        causes = {
            key: {"work": item.work, "error": item.error, "told": item.told.isoformat(), "more": item.more}
            for key, item in self.causes.items()
        }
        document = {"since": self.since.isoformat(), "seen": seen, "causes": causes, "tries": self.tries}
        return json.dumps(document, sort_keys=True)

    def behind(self, records: Sequence[RunRecord]) -> Position:
        """The position behind these records, whosever they are; ids that the next look cannot meet are forgotten."""
        times = {record.dagster_run.run_id: record.update_timestamp for record in records}
        seen = {**self.seen, **times}
        since = max([self.since, *(time - _OVERLAP for time in times.values())])
        kept = sorted((time, run_id) for run_id, time in seen.items() if time >= since)[-_MOST_SEEN:]
        if len(kept) == _MOST_SEEN:
            since = max(since, kept[0][0])
        return replace(self, since=since, seen={run_id: time for time, run_id in kept}, tries=0)

    def due_alerts(self, failed: Mapping[str, Sequence[FailedRun]], now: datetime) -> tuple[Alerts, Position]:
        """What a message now has to say of runs by cause, and the position once it has been said."""
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
    """What a message has to say: runs by causes that are news, and causes that were told before."""

    new: Mapping[str, Sequence[FailedRun]]
    again: tuple[Repetition, ...]

    @property
    def runs(self) -> list[FailedRun]:
        """The runs that are news: the first of each cause, then the others."""
        firsts = [runs[0] for runs in self.new.values()]
        return [*firsts, *(run for runs in self.new.values() for run in runs[1:])]


def cause_of(run: FailedRun) -> str:
    """The same for runs that failed of the same: without numbers, and whichever of its tables are to blame."""
    error = run.error
    for table in sorted(run.tables, key=len, reverse=True):
        error = error.replace(table, "…")
    return hashlib.sha256(f"{run.work}: {re.sub(r'[0-9]+', '#', error)}".encode()).hexdigest()[:16]
