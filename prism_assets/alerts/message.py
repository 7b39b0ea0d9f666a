"""The text of an alert: short for any number of failed runs and tables, and without secrets."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from prism_assets.domain.text import counted

_RUNS_SHOWN = 10
_TABLES_SHOWN = 5
_LONGEST_ERROR = 400
_SHORTEST_SECRET = 4
_CREDENTIALS = re.compile(r"(?<=://)[^/\s@]*@")
_TOKEN = re.compile(r"(?i)\b(token|password|secret|signature|x-amz-[a-z-]+)=[^&;\s]+")
_HIDDEN = "***"


@dataclass(frozen=True, kw_only=True)
class FailedRun:
    """One failed run."""

    run_id: str
    work: str
    """The work of the run."""
    tables: tuple[str, ...]
    """The tables to blame, if known."""
    day: str | None
    error: str
    link: str | None = None


@dataclass(frozen=True, kw_only=True)
class Repetition:
    """Further runs that failed with an error reported earlier."""

    work: str
    error: str
    runs: int
    since: datetime
    """The time of the first report."""


@dataclass(frozen=True, kw_only=True)
class Alert:
    """One message about failed runs, or about tables that need attention."""

    subject: str
    text: str
    failed: int
    """How many runs failed, repetitions included."""
    runs: tuple[FailedRun, ...]
    """The first of the new failures."""


def write_alert(runs: Sequence[FailedRun], repetitions: Sequence[Repetition] = ()) -> Alert:
    """Writes one message about new failures and repetitions. Names only the first of each.

    Copies error texts unchanged: the caller has redacted them.
    """
    shown = tuple(replace(run, error=_short(run.error)) for run in runs[:_RUNS_SHOWN])
    tables = sorted({table for run in shown for table in run.tables})
    total = len(runs) + sum(item.runs for item in repetitions)
    subject = f"prism: {total} {'' if runs else 'more '}{'run' if total == 1 else 'runs'} failed"
    lines = [f"{subject}, for {_listed(tables)}" if tables else subject, *map(_line, shown)]
    if len(runs) > len(shown):
        lines.append(f"… and {len(runs) - len(shown)} more runs")
    lines += [_again(replace(item, error=_short(item.error))) for item in repetitions[:_RUNS_SHOWN]]
    if len(repetitions) > _RUNS_SHOWN:
        lines.append(f"… and repeated failures with {len(repetitions) - _RUNS_SHOWN} other errors")
    return Alert(subject=subject, text="\n".join(lines), failed=total, runs=shown)


def write_attention(new: Sequence[str], again: Sequence[str] = (), cleared: Sequence[str] = ()) -> Alert:
    """Writes one message about failed checks and findings for a person: new ones, old ones, and those that ended.

    Copies the sentences unchanged: the caller has redacted them.
    """
    parts = [(new, "needs attention", "need attention"), (again, "still does", "still do"), (cleared, "ended", "ended")]
    counts = [f"{len(items)} {one if len(items) == 1 else many}" for items, one, many in parts if items]
    subject = f"prism: {', '.join(counts)}"
    lines = [subject]
    for items, mark in ((new, "-"), (again, "- still:"), (cleared, "- ended:")):
        lines += [f"{mark} {_short(item)}" for item in items[:_RUNS_SHOWN]]
        if len(items) > _RUNS_SHOWN:
            lines.append(f"{mark} … and {len(items) - _RUNS_SHOWN} more")
    return Alert(subject=subject, text="\n".join(lines), failed=0, runs=())


def redact(text: str, secrets: Collection[str]) -> str:
    """Hides the given secrets, credentials in addresses, and values named like a secret."""
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= _SHORTEST_SECRET:
            text = text.replace(secret, _HIDDEN)
    return _TOKEN.sub(rf"\1={_HIDDEN}", _CREDENTIALS.sub(f"{_HIDDEN}@", text))


def _line(run: FailedRun) -> str:
    day = f" {run.day}" if run.day else ""
    link = f" {run.link}" if run.link else ""
    tables = f", {_listed(run.tables)}" if run.tables else ""
    return f"- {run.work}{day}, run {run.run_id[:8]}{tables}: {run.error}{link}"


def _again(item: Repetition) -> str:
    since = f"since {item.since:%H:%M}Z"
    return (
        f"- {item.work}, {item.runs} more {'run' if item.runs == 1 else 'runs'} {since}, "
        f"as reported before: {item.error}"
    )


def _listed(tables: Sequence[str]) -> str:
    more = [counted(len(tables) - _TABLES_SHOWN, "more table")] if len(tables) > _TABLES_SHOWN else []
    return ", ".join([*tables[:_TABLES_SHOWN], *more])


def _short(error: str) -> str:
    line = " ".join(error.split())
    return line if len(line) <= _LONGEST_ERROR else f"{line[: _LONGEST_ERROR - 1]}…"
