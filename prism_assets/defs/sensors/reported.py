"""Check results reported to Dagster, and the next ones to report: changes first, then failing ones once a day.

Each report is an event without a run, so pruning never removes it. Therefore the same result is not reported every few
minutes.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone

from prism_assets.stages.checks.outcomes import CheckOutcome

Name = tuple[str, str]
"""A table and one of its checks."""
_AGAIN = timedelta(days=1)
_NEWLY_FAILING, _RECOVERED, _NEW, _STILL_FAILING = range(4)


@dataclass(frozen=True)
class Reported:
    """All checks ever reported, and the failing ones with the time of their last report."""

    known: frozenset[Name] = frozenset()
    failed: Mapping[Name, datetime] = field(default_factory=dict)
    after: Mapping[str, str] = field(default_factory=dict)
    """The name at which each turn ended: by check of a catalog, the table; for last results, table and check."""
    first: str = ""
    """The check the next tick begins with."""
    alerted: Mapping[str, datetime] = field(default_factory=dict)
    """What people were told of and has not ended, with the time of the last message (`table_alerts`)."""

    @classmethod
    def read(cls, cursor: str | None) -> Reported:
        """Reads a cursor. One of another form counts as empty."""
        document = json.loads(cursor) if cursor else {}
        if not isinstance(document.get("failing"), dict):
            return cls()
        known = {(table, check) for item in document["known"] for table in item["tables"] for check in item["checks"]}
        failed = {
            (table, check): datetime.fromtimestamp(seconds, timezone.utc)
            for check, tables in document["failing"].items()
            for table, seconds in tables.items()
        }
        after = document["after"] if isinstance(document["after"], dict) else {}
        alerted = {
            key: datetime.fromtimestamp(seconds, timezone.utc) for key, seconds in document.get("alerted", {}).items()
        }
        return cls(frozenset(known), failed, after, document["first"], alerted)

    def write(self) -> str:
        """Returns the cursor. Tables with the same checks are listed together, as most are."""
        checks: dict[str, list[str]] = defaultdict(list)
        for table, check in sorted(self.known):
            checks[table].append(check)
        tables: dict[tuple[str, ...], list[str]] = defaultdict(list)
        for table, names in checks.items():
            tables[tuple(names)].append(table)
        failed: dict[str, dict[str, int]] = defaultdict(dict)
        for (table, check), time in sorted(self.failed.items()):
            failed[check][table] = int(time.timestamp())
        known = [{"checks": list(names), "tables": members} for names, members in tables.items()]
        alerted = {key: int(time.timestamp()) for key, time in self.alerted.items()}
        return json.dumps(
            {"known": known, "failing": failed, "after": dict(self.after), "first": self.first, "alerted": alerted}
        )

    def due(self, outcomes: Collection[CheckOutcome], now: datetime) -> list[CheckOutcome]:
        """Returns the outcomes to report, most urgent first: newly failing, recovered, never reported, failing for a
        day.
        """
        ranked = [(rank, item) for item in outcomes if (rank := self._rank(item, now)) is not None]
        return [item for _, item in sorted(ranked, key=lambda pair: (pair[0], self._told(pair[1]), _name(pair[1])))]

    def told(self, outcomes: Collection[CheckOutcome], now: datetime, present: Collection[Name]) -> Reported:
        """Returns the state after a report of these outcomes. Forgets checks that no table has any more."""
        names = set(map(_name, outcomes))
        kept = {name: time for name, time in self.failed.items() if name not in names and name in present}
        failed = {_name(item): now for item in outcomes if not item.passed}
        known = frozenset(name for name in self.known | names if name in present)
        return Reported(known, {**kept, **failed}, self.after, self.first, self.alerted)

    def _rank(self, outcome: CheckOutcome, now: datetime) -> int | None:
        name = _name(outcome)
        if not outcome.passed:
            if name not in self.failed:
                return _NEWLY_FAILING
            return None if timedelta(0) <= now - self.failed[name] < _AGAIN else _STILL_FAILING
        if name in self.failed:
            return _RECOVERED
        return None if name in self.known else _NEW

    def _told(self, outcome: CheckOutcome) -> float:
        time = self.failed.get(_name(outcome))
        return time.timestamp() if time else 0.0


def _name(outcome: CheckOutcome) -> Name:
    return outcome.table, outcome.check
