"""Decides which record files a fold writes again, and which changes wait: a pure function of a few figures of each.

A record file is the objects of one date, bucket and cohort, so its records were born in the same quarter of an hour. As
long as most of their changes come, the file is small; later, few of its records are touched.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from prism_assets.domain.records.joins import PublishPolicy

NEW, DIRTY, STALE, SETTLES, LINKED = ("new", "dirty", "stale", "settles", "linked")
"""Why a record file is written. A file is linked if a record moves between it and a written one."""


@dataclass(frozen=True, kw_only=True)
class RecordFile:
    """The figures of a record file."""

    rows: int
    touched: int
    """Records with waiting changes."""
    waited_seconds: float = 0.0
    """Since when the oldest of these changes waits."""
    settles: bool = False
    """Whether a record must go, or must get its last changes."""


def write_reason(policy: PublishPolicy, file: RecordFile) -> str | None:
    """Why a record file is written now, by its own figures; None if its changes wait."""
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
    """The places of the record files to write, each with its reason. `links` are pairs with a common record."""
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
