"""The options that all commands share, their clock, and the way in which a command fails."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta, timezone
from typing import TYPE_CHECKING, Annotated

import typer

from prism_assets import console
from prism_assets.domain.errors import TerminalError, WrongUse
from prism_assets.settings import load_settings

if TYPE_CHECKING:
    from prism_assets.stages.context import StageContext

_FARTHEST_NOW = timedelta(days=2 * 365 + 1)
_YEARS = range(1970, 2201)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Tables = Annotated[list[str] | None, typer.Option("--table", help="Only this schema.table. May be repeated.")]
Now = Annotated[str | None, typer.Option("--now", help="The clock of this run, such as 2026-11-21T00:10:00Z.")]
Force = Annotated[bool, typer.Option("--force", help="Accept a --now that is more than two years away.")]
Day = Annotated[str | None, typer.Option("--date", help="Only this event date, such as 2026-11-20.")]


def read_clock(now: str | None, force: bool) -> datetime:
    """The time given, in UTC, or the present; times without an offset are UTC.

    WrongUse for one that is years away and not meant, and in any case outside the years from 1970 to 2200.
    """
    present = datetime.now(timezone.utc)
    if now is None:
        return present
    try:
        parsed = datetime.fromisoformat(now.replace("Z", "+00:00"))
    except ValueError:
        raise WrongUse(f"--now {now} is not a time: write it like 2026-11-21T00:10:00Z") from None
    # PostgreSQL stores times that no driver can load, so rows written under such a clock make all later runs fail.
    given = _in_utc(parsed)
    if given is None or given.year not in _YEARS:
        raise WrongUse(
            f"--now {now} is not between the years {_YEARS[0]} and {_YEARS[-1]} in UTC: later runs could not load what "
            "is recorded under such a clock; --force does not help"
        )
    if abs(given - present) > _FARTHEST_NOW and not force:
        raise WrongUse(
            f"--now {now} is more than two years from the present, {present:%Y-%m-%dT%H:%MZ}; what is done by a wrong "
            "clock, such as closing days, is not taken back: correct it, or add --force if it is meant"
        )
    return given


def _in_utc(time: datetime) -> datetime | None:
    """None where the time is in UTC before the first or behind the last that there is."""
    try:
        return time.astimezone(timezone.utc) if time.tzinfo else time.replace(tzinfo=timezone.utc)
    except OverflowError:
        return None


def running_clock(now: str | None, force: bool) -> Callable[[], datetime]:
    """A clock that starts at the time given, or at the present, and goes on from there."""
    start, began = read_clock(now, force), time.monotonic()
    return lambda: start + timedelta(seconds=time.monotonic() - began)


def read_day(text: str | None) -> date | None:
    """The date given, if any; WrongUse if it is none."""
    if text is None:
        return None
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise WrongUse(f"{text} is not a date: write it like 2026-11-20") from None


def open_context(as_json: bool) -> StageContext:
    """What the stages work with, from the settings; progress is told to who watches."""
    from prism_assets.platform import build_context

    return build_context(load_settings(), progress=console.progress(as_json))


def fail_if(errors: Sequence[str]) -> None:
    """TerminalError with all sentences, if there are any: exit status 1."""
    if errors:
        raise TerminalError("\n".join(errors))
