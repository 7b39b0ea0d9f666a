"""Proposes window and lateness of a join table from a sample of its log. Pure functions.

The sample holds all changes of some keys. A record consists of changes of a key at most a window apart, directly or by
a chain (`record_model.py`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from prism_assets.domain.records.joins import JoinOptions
from prism_assets.domain.tables.amplification import MOST_FACTOR, Amplification, expected_forever
from prism_assets.domain.text import counted, span

SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999}
WINDOWS = (
    1, 5, 10, 30, 60, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800, 1_209_600,
    2_592_000,
)  # fmt: skip
"""Windows and latenesses to propose, in seconds."""
_LEAST_LATENESS = 300
_ENOUGH_SPANS = 4
"""A gap counts as bounded if the sample spans this many times its length."""


@dataclass(frozen=True, kw_only=True)
class ChangeSample:
    """Changes of a sample of keys, from the newest days of a log."""

    days: int
    log_changes: int
    """Changes of the log in these days."""
    one_of: int
    """One key in this many is in the sample."""
    histories: Sequence[Sequence[float]]
    """Sorted event times of each key in seconds."""
    delays: Sequence[float]
    """Seconds from each change's event until it was sent."""
    too_late: int = 0
    """Lines refused as too late in the last week. They are in no log."""

    @property
    def changes(self) -> int:
        """Number of changes in the sample."""
        return sum(map(len, self.histories))

    @property
    def seconds(self) -> float:
        """From the first event to the last."""
        times = [time for history in self.histories for time in (history[0], history[-1])]
        return max(times) - min(times) if times else 0.0


@dataclass(frozen=True, kw_only=True)
class JoinAdvice:
    """The proposal and its evidence. Times are in seconds."""

    table: str
    sample: ChangeSample
    in_force: JoinOptions
    gaps: Mapping[str, float]
    delays: Mapping[str, float]
    window: float | None
    """None if records should live for ever, or if no key has two changes."""
    lateness: float | None
    split: Mapping[float, float]
    """The share of records divided by each shorter window, and by the current one."""
    forever: float
    """Rows folds would write per change if records lived for ever."""

    @property
    def document(self) -> dict[str, object]:
        """The advice for JSON, without the sample itself."""
        return {
            "table": self.table,
            "days": self.sample.days,
            "log_changes": self.sample.log_changes,
            "one_key_of": self.sample.one_of,
            "sampled_changes": self.sample.changes,
            "sampled_keys": len(self.sample.histories),
            "too_late_lines": self.sample.too_late,
            "gap_seconds": dict(self.gaps),
            "send_delay_seconds": dict(self.delays),
            "window_seconds": self.window,
            "window_in_force": self.in_force.window_seconds,
            "lateness_seconds": self.lateness,
            "lateness_in_force": self.in_force.lateness_seconds,
            "records_split": [{"window_seconds": window, "share": share} for window, share in self.split.items()],
            "forever_rows_per_change": round(self.forever, 2),
        }

    @property
    def lines(self) -> list[str]:
        """The advice for people."""
        sample = self.sample
        keys = "all keys" if sample.one_of == 1 else f"one key in {sample.one_of}"
        found = [
            f"{self.table}: a sample of {counted(sample.changes, 'change')} of {counted(len(sample.histories), 'key')} "
            f"({keys}) from {counted(sample.log_changes, 'change')} in {counted(sample.days, 'day')}"
        ]
        if not sample.histories:
            return [*found, "  the log shows no change: convert some, and ask again"]
        found.append(f"  between two changes of a key:  {_listed(self.gaps) or 'no key has two'}")
        found.append(f"  sent after the event:          {_listed(self.delays) or 'not known'}")
        found += [f"  {line}" for line in (*self._window_lines(), *self._lateness_lines())]
        cost = Amplification(
            rows_written=round(self.forever * sample.log_changes), changes_folded=sample.log_changes, days=sample.days
        )
        large = f", above {MOST_FACTOR}: not for this table" if cost.is_too_much else ""
        found.append(f"  window: forever would write {self.forever:.1f} rows for each change{large}")
        return found

    def _window_lines(self) -> list[str]:
        now = _window_text(self.in_force.window_seconds)
        if not self.gaps:
            return [f"window: nothing to propose, as no key has two changes (in force: {now})"]
        proposed = "forever" if self.window is None else span(self.window)
        why = "" if self.window is not None else ": gaps are as long as the log goes back, or longer than 30d"
        shares = [f"{span(window)} {share:.2%}" for window, share in self.split.items()]
        more = [f"share of records split by a shorter window: {', '.join(shares)}"] if shares else []
        return [f"window: {proposed} (in force: {now}){why}", *more]

    def _lateness_lines(self) -> list[str]:
        if self.lateness is None:
            return []
        one, many = "line of the last week was too late and is", "lines of the last week were too late and are"
        refused = f"; {counted(self.sample.too_late, one, many)} not among these" if self.sample.too_late else ""
        return [f"lateness: {span(self.lateness)} (in force: {span(self.in_force.lateness_seconds)}){refused}"]


def advise(table: str, join: JoinOptions, sample: ChangeSample) -> JoinAdvice:
    """Proposes the shortest usual window and lateness that cover 99.9 % of gaps and delays."""
    gaps = sorted(later - earlier for history in sample.histories for earlier, later in itertools.pairwise(history))
    delays = sorted(max(delay, 0.0) for delay in sample.delays)
    of_gaps, of_delays = _percentiles(gaps), _percentiles(delays)
    window = _least(of_gaps["p99.9"]) if gaps else None
    if window is not None and window * _ENOUGH_SPANS > sample.seconds and window > WINDOWS[0]:
        window = None
    lateness = _least(max(of_delays["p99.9"], _LEAST_LATENESS)) if delays else None
    return JoinAdvice(
        table=table,
        sample=sample,
        in_force=join,
        gaps=of_gaps,
        delays=of_delays,
        window=window,
        lateness=lateness,
        split=_split(sample.histories, window, join.window_seconds) if gaps else {},
        forever=expected_forever(
            len(sample.histories) * sample.one_of,
            sample.changes * sample.one_of / max(sample.seconds, 1.0),
            join.publish,
        ),
    )


def _split(histories: Sequence[Sequence[float]], window: float | None, in_force: int | None) -> dict[float, float]:
    """Returns the share of records divided by shorter windows: the five next shorter ones, and the current one."""
    longest = math.inf if window is None else window
    shorter = [step for step in WINDOWS if step < longest][-5:]
    if in_force is not None and in_force < longest:
        shorter.append(in_force)
    records = [gap for history in histories for gap in _longest_gaps(history, longest)]
    return {step: sum(gap > step for gap in records) / len(records) for step in sorted(set(shorter))}


def _longest_gaps(history: Sequence[float], window: float) -> list[float]:
    """Returns the longest gap between two changes in each record formed by a window."""
    found = [0.0]
    for earlier, later in itertools.pairwise(history):
        if later - earlier > window:
            found.append(0.0)
        else:
            found[-1] = max(found[-1], later - earlier)
    return found


def _least(seconds: float) -> float | None:
    """Returns the shortest step of at least this length, or None beyond all of them."""
    return next((step for step in WINDOWS if step >= seconds), None)


def _percentiles(ordered: Sequence[float]) -> dict[str, float]:
    """Returns for each share the value it does not exceed."""
    return {name: ordered[math.ceil(share * len(ordered)) - 1] for name, share in SHARES.items()} if ordered else {}


def _listed(percentiles: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {span(value)}" for name, value in percentiles.items())


def _window_text(window: int | None) -> str:
    return "forever" if window is None else span(window)
