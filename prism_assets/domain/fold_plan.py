"""Which objects of records a fold writes anew, and what waits: a pure function of a few figures of each.

Records that are born in the same quarter of an hour share a home, the objects of one date, bucket and cohort: in the
time in which most of their changes come a home is small, and later few of its records are touched.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from prism_assets.domain.joins import PublishPolicy

NEW, DIRTY, STALE, SETTLES, LINKED = ("new", "dirty", "stale", "settles", "linked")
"""Why a home is written anew. One is linked if a record spans it and another that is: a row moves at once."""


@dataclass(frozen=True, kw_only=True)
class Home:
    """A home in figures: its rows, how many records changes wait for, and since when in seconds.

    It `settles` if a record must go, or must get its last changes.
    """

    rows: int
    touched: int
    waited_seconds: float = 0.0
    settles: bool = False


def write_reason(policy: PublishPolicy, home: Home) -> str | None:
    """Why a home is written anew now, as far as it tells itself; None if its changes wait."""
    if home.settles:
        return SETTLES
    if not home.touched:
        return None
    if not home.rows:
        return NEW
    if home.touched >= policy.dirty * home.rows:
        return DIRTY
    return STALE if home.waited_seconds >= policy.stale_seconds else None


def homes_to_write(
    policy: PublishPolicy, homes: Sequence[Home], links: Iterable[tuple[int, int]] = ()
) -> dict[int, str]:
    """The homes that are written anew, by their place, and why; `links` are pairs of homes that one record spans."""
    reasons = {place: write_reason(policy, home) for place, home in enumerate(homes)}
    due = {place: reason for place, reason in reasons.items() if reason}
    neighbours: dict[int, set[int]] = {}
    for one, other in links:
        neighbours.setdefault(one, set()).add(other)
        neighbours.setdefault(other, set()).add(one)
    reached = list(due)
    while reached:
        for other in sorted(neighbours.get(reached.pop(), set()) - due.keys()):
            due[other] = LINKED
            reached.append(other)
    return dict(sorted(due.items()))
