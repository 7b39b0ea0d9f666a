"""Names of former columns and fields that objects still have, and what to do until they are free.

Readers by name would take the values of the former column for those of a new one.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass

from prism_assets.domain.text import counted


@dataclass(frozen=True, kw_only=True)
class HeldName:
    """A name that former columns may have in objects."""

    days: int
    """How many days have such objects."""
    first: datetime.date | None
    last: datetime.date | None
    waiting: int = 0
    """Staging objects still to be converted under a definition with such a column."""


def taken(table: str, name: str, held: HeldName, *, what: str = "column") -> str:
    """Returns why a new column, or another thing, cannot have a held name yet."""
    return (
        f"{name} was another {what}, whose values readers of Glue would take for those of the new one: "
        f"{held_by(held)}; choose another name, or {remedy(table, held)}"
    )


def held_by(held: HeldName) -> str:
    """Returns what holds a name."""
    if not held.days:
        return f"{counted(held.waiting, 'staging object is', 'staging objects are')} still to be converted with it"
    days = f"{held.first}" if held.days == 1 else f"{counted(held.days, 'day')} from {held.first} to {held.last}"
    return f"objects of {days} may have it under that name"


def remedy(table: str, held: HeldName) -> str:
    """Returns the commands after which a name is free."""
    if not held.days:
        return "run `prism stream` first"
    since = "" if held.days == 1 else f" --since {held.first}"
    return (
        f"rebuild them: `prism rebuild {table} --date {held.last}{since}` when the days are closed, and `prism catalog`"
    )
