"""Which objects of records a fold writes anew, and what waits: a pure function of a few figures of each.

Records that are born in the same quarter of an hour share a record file, the objects of one date, bucket and cohort: in the
time in which most of their changes come a record file is small, and later few of its records are touched.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from prism_assets.domain.joins import PublishPolicy

NEW, DIRTY, STALE, SETTLES, LINKED = ("new", "dirty", "stale", "settles", "linked")
"""Why a record file is written anew. One is linked if a record spans it and another that is: a row moves at once."""


@dataclass(frozen=True, kw_only=True)
class RecordFile:
    """A record file in figures: its rows, how many records changes wait for, and since when in seconds.

    It `settles` if a record must go, or must get its last changes.
    """

    rows: int
    touched: int
    waited_seconds: float = 0.0
    settles: bool = False


def write_reason(policy: PublishPolicy, file: RecordFile) -> str | None:
    """Why a record file is written anew now, as far as it tells itself; None if its changes wait."""
    if file.settles:
        return SETTLES
    if not file.touched:
        return None
    if not file.rows:
        return NEW
    if file.touched >= policy.dirty * file.rows:
        return DIRTY
    return STALE if file.waited_seconds >= policy.stale_seconds else None


def files_to_write(
    policy: PublishPolicy, files: Sequence[RecordFile], links: Iterable[tuple[int, int]] = ()
) -> dict[int, str]:
    """The record files that are written anew, by their place, and why; `links` are pairs of record files that one record spans."""
    reasons = {place: write_reason(policy, file) for place, file in enumerate(files)}
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
