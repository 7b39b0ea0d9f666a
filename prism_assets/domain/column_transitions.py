"""How a renamed or widened column gets its new name or type for readers of Glue, who look columns up in each object.

From the change on objects hold a renamed column under both names; those of before are rewritten. Only when readers are
sent to no other object does Glue show a new name, first beside the former one. Of a new type no reader finds wider
values under a narrower one: merged objects are copied with it, which nobody is sent to; then nothing new is begun until
all else is merged and copied, too, and the copies take the place of all objects at once. Where readers that take Glue
at its word may fail, Glue shows it first, as the others find narrower values under it; then objects have it, and those
of before are rewritten. Each state is a version of the definition: whatever follows a definition follows it, too.
`next_step` alone decides; runs carry out, and people are told, what it says.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from prism_assets.domain.merge_plan import REWRITES, REWRITTEN_DAYS
from prism_assets.domain.types import ColumnType
from prism_assets.domain.words import counted


class RenameState(enum.StrEnum):
    """How far a column is on the way to its new name."""

    REWRITING = "rewriting"
    """Older objects have the former name alone, and Glue shows that one."""
    DRAINING = "draining"
    """All objects have both; readers may still use others that they were sent to before."""
    BOTH_SHOWN = "both_shown"
    """Glue shows both names."""
    DRAINING_FORMER = "draining_former"
    """Glue shows the new name alone; objects still have both, for readers of before."""


NEXT_STATE = {
    RenameState.REWRITING: RenameState.DRAINING,
    RenameState.DRAINING: RenameState.BOTH_SHOWN,
    RenameState.BOTH_SHOWN: RenameState.DRAINING_FORMER,
    RenameState.DRAINING_FORMER: None,
}
SHOWS_FORMER = frozenset({RenameState.REWRITING, RenameState.DRAINING})
"""While Glue shows the former name alone."""


@dataclass(frozen=True, kw_only=True)
class ColumnRename:
    """A column was called `former`, and objects have a copy of it under that name, which is no column of its own.

    Objects written under version `version` of the definition, or a later one, have both names; `since` is the version
    that came with the state.
    """

    former: str
    state: RenameState
    version: int
    since: int

    @property
    def is_rewriting(self) -> bool:
        """Whether older objects are still to be rewritten."""
        return self.state is RenameState.REWRITING


class WideningState(enum.StrEnum):
    """How far a column is on the way to its new type."""

    COPYING = "copying"
    """Merged objects of all days are copied with the new type; what readers are sent to has the one of before."""
    FLIPPING = "flipping"
    """No batch begins with an object, and all days are closed, merged and copied, till the copies take their place."""
    SHOWING = "showing"
    """Glue is to show the new type; objects are written with the one of before."""
    REWRITING = "rewriting"
    """Glue shows the new type, with which objects are written; those of before are narrow."""


@dataclass(frozen=True, kw_only=True)
class ColumnWidening:
    """A column was a `former`, a narrower type, of which objects from before `version` of the definition have values.

    As long as Glue is to show a type before objects have it, that is `shown_first`; one that merged objects are copied
    with is `copy_type`. The column then still has the one that objects are written with, and `version` is that of the
    change. Where it is widened again before all objects are rewritten, `former` is the first type and `version` the
    last one. `flip_version` is that with which the flip began last, or was given up; 0 before it. New objects wait for
    the flip for `flip_seconds` at most.
    """

    former: ColumnType
    version: int
    shown_first: ColumnType | None = None
    copy_type: ColumnType | None = None
    is_flipping: bool = False
    flip_version: int = 0
    flip_seconds: int = 0

    @property
    def flip_limit(self) -> timedelta:
        """How long new objects wait for the flip at most: an hour where an earlier version stored the definition."""
        return timedelta(seconds=self.flip_seconds) or FLIP_LIMIT

    @property
    def state(self) -> WideningState:
        """How far it is."""
        if self.copy_type:
            return WideningState.FLIPPING if self.is_flipping else WideningState.COPYING
        return WideningState.SHOWING if self.shown_first else WideningState.REWRITING

    @property
    def wanted_type(self) -> ColumnType | None:
        """The type it is to have; None where it has it."""
        return self.shown_first or self.copy_type

    @property
    def since(self) -> int:
        """The version that came with the state."""
        return max(self.version, self.flip_version)

    @property
    def is_rewriting(self) -> bool:
        """Whether older objects are still to be rewritten: from the next state to the end."""
        return self.state is WideningState.REWRITING


ColumnTransition = ColumnRename | ColumnWidening


@dataclass(frozen=True, kw_only=True)
class ObjectsLeft:
    """What readers of Glue are sent to, or may be yet, and that lacks the new name, or the new type.

    Before a flip that is whatever is no merged object with a copy, and what may still become such a thing.
    """

    merged: int = 0
    """Merged objects of closed days, to be rewritten."""
    uncopied: int = 0
    """Merged objects of all days without a copy, where copies are made."""
    unswitched_days: int = 0
    """Closed days whose readers are sent to small objects yet, where copies are made."""
    small: int = 0
    """Small objects of closed days, to be merged."""
    in_open_days: int = 0
    """Objects of open days that are waited for, but those that are copied."""
    staging: int = 0
    """Staging objects that batches claimed under a definition of before."""
    unpublished_days: int = 0
    """Days of which a catalog shows objects of before, or may, as one may have landed that is not on record."""
    publications: int = 0
    """Publications that were not seen to end."""
    merges: int = 0
    """Merges that wait or run, where copies are made."""
    failing_merges: int = 0
    """Those of them that failed last time."""
    first_day: date | None = None
    last_day: date | None = None

    @property
    def is_empty(self) -> bool:
        """Whether all objects have the new name, or type, or a copy with it."""
        return not any(number for name, number in vars(self).items() if name not in ("first_day", "last_day"))

    def __str__(self) -> str:
        return ", ".join(self._parts())

    def _parts(self) -> Iterator[str]:
        if self.merged:
            yield f"{counted(self.merged, 'merged object')} to be rewritten"
        if self.uncopied:
            yield f"{counted(self.uncopied, 'merged object')} to be copied"
        if self.unswitched_days:
            yield f"{counted(self.unswitched_days, 'closed day')} whose readers are not sent to merged objects yet"
        if self.small:
            yield f"{counted(self.small, 'small object')} to be merged"
        if self.in_open_days:
            yield f"{counted(self.in_open_days, 'object')} of days that are open"
        if self.staging:
            yield f"{counted(self.staging, 'staging object')} to be converted that were claimed before"
        if self.unpublished_days:
            yield f"{counted(self.unpublished_days, 'day')} to be published"
        if self.publications:
            yield f"{counted(self.publications, 'publication')} not seen to end"
        if self.merges:
            yield f"{counted(self.merges, 'merge')} to be run"
        if self.failing_merges:
            yield f"{counted(self.failing_merges, 'merge')} that failed"
        if self.first_day:
            days = f"{self.first_day}" if self.first_day == self.last_day else f"{self.first_day} to {self.last_day}"
            yield f"of {days}"


@dataclass(frozen=True, kw_only=True)
class TransitionFacts:
    """What decides besides the state: since when that is, what is left, and since when every catalog shows it.

    `shown` is None as long as one does not, or what was sent to it before may still change that. The transition itself
    has `begun` before.
    """

    begun: datetime
    since: datetime
    left: ObjectsLeft
    shown: datetime | None


@dataclass(frozen=True, kw_only=True)
class TransitionStep:
    """What the next catalog run does about a transition: `to` another state, or to its end.

    Where it is not due yet, `reason` says what is waited for. New objects wait for a flip that begins, for `flip_limit`
    at most.
    """

    to: RenameState | WideningState | None
    reason: str = ""
    flip_limit: timedelta = timedelta()

    @property
    def is_due(self) -> bool:
        """Whether the next run takes it."""
        return not self.reason


def next_step(
    transition: ColumnTransition,
    facts: TransitionFacts,
    now: datetime,
    *,
    reader_lease: timedelta,
    grace: timedelta,
    is_asked_for: bool = False,
) -> TransitionStep:
    """The step that ends the present state of a rename or a widening, due or not.

    Nothing that is made under a definition in force adds to what is left: once it is nothing it stays so. What Glue is
    to show counts from when the last catalog shows it, which may be long after its definition came into force. A
    flip that was given up begins at once where a person has asked for it.
    """
    if isinstance(transition, ColumnWidening) and transition.state is not WideningState.REWRITING:
        return _next_widening_step(transition, facts, now, is_asked_for=is_asked_for)
    to = NEXT_STATE[transition.state] if isinstance(transition, ColumnRename) else None
    if transition.is_rewriting and not facts.left.is_empty:
        return TransitionStep(to=to, reason=f"older objects are left: {facts.left}")
    if isinstance(transition, ColumnWidening):
        return TransitionStep(to=to)
    return _next_rename_step(transition, to, facts, now, reader_lease, grace)


_NOT_SHOWN = "a catalog does not show that yet, and objects are written as before until all do"
FLIP_LIMIT = timedelta(hours=1)
"""The longest wait of new objects for a flip, where catalog runs come: meanwhile no batch begins with one."""
_FLIP_LEAST = timedelta(minutes=10)
"""The wait in a table with few objects: a few runs of each stage take no longer."""
_FLIP_EACH = timedelta(seconds=10)
"""Each object to be merged or copied adds this to the wait."""
FLIP_PAUSE = timedelta(days=1)
"""How long a flip that was given up is not begun again by itself."""
MOST_UNCOPIED_TO_BEGIN = REWRITTEN_DAYS * REWRITES
"""Merged objects that may be without a copy when a flip begins: as many as one merge run copies, as rows that come late
have some of them written anew all the time."""


def _next_widening_step(
    widening: ColumnWidening, facts: TransitionFacts, now: datetime, *, is_asked_for: bool
) -> TransitionStep:
    """A flip ends: a merge that fails, for example, holds up no new rows for ever.

    Where every object has a copy already, and no open day has an object, nothing waits for the flip.
    """
    match widening.state:
        case WideningState.SHOWING:
            return TransitionStep(to=WideningState.REWRITING, reason="" if facts.shown else _NOT_SHOWN)
        case WideningState.COPYING | WideningState.FLIPPING if facts.left.is_empty:
            return TransitionStep(to=None)
        case WideningState.FLIPPING if now >= facts.since + widening.flip_limit:
            return TransitionStep(to=WideningState.COPYING)
        case WideningState.FLIPPING:
            until = f"{facts.since + widening.flip_limit:%Y-%m-%d %H:%M}Z"
            return TransitionStep(to=None, reason=f"new objects wait, until {until} at most, for {facts.left}")
    if widening.flip_version and not is_asked_for and now < (again := facts.since + FLIP_PAUSE):
        return TransitionStep(
            to=WideningState.FLIPPING,
            reason=f"the flip to it did not end in time, until {facts.since:%Y-%m-%d %H:%M}Z; it is tried "
            f"again at {again:%Y-%m-%d %H:%M}Z, or by `prism table flip`; left now: {facts.left}",
        )
    if reason := _not_to_be_begun(facts.left):
        return TransitionStep(to=WideningState.FLIPPING, reason=reason)
    # A flip that did not end within its first limit gets the longest one at its next try.
    limit = FLIP_LIMIT if widening.flip_version else flip_limit(facts.left)
    return TransitionStep(to=WideningState.FLIPPING, flip_limit=limit)


def flip_limit(left: ObjectsLeft) -> timedelta:
    """How long new objects wait at most for a flip that begins with these objects left."""
    objects = left.uncopied + left.small + left.in_open_days + left.staging
    return min(FLIP_LIMIT, _FLIP_LEAST + objects * _FLIP_EACH)


def flip_outlook(table: str, left: ObjectsLeft) -> str:
    """Says, before a widening begins, what its flip would do to open days with their current objects."""
    if not left.in_open_days and not left.staging:
        return (
            f"flip {table} at once when all have a copy, if open days have no object then, as now: no day closes "
            "early, and no new object waits"
        )
    minutes = flip_limit(left).total_seconds() / 60
    return (
        f"flip {table} when all have a copy: its open days close at once, that of today too, and new objects wait for "
        f"some minutes, {minutes:.0f} at most; rows that come for these days later are late rows, which are readable "
        "after the next catalog run and not at once"
    )


def _not_to_be_begun(left: ObjectsLeft) -> str:
    """Why a flip would hold up new rows for long, or in vain; empty where it would not."""
    if left.uncopied > MOST_UNCOPIED_TO_BEGIN:
        return f"merged objects are copied with that type: {counted(left.uncopied, 'object')} left"
    others = ObjectsLeft(
        unswitched_days=left.unswitched_days, failing_merges=left.failing_merges, publications=left.publications
    )
    return "" if others.is_empty else f"the flip to it begins behind {others}"


def _next_rename_step(
    rename: ColumnRename,
    to: RenameState | None,
    facts: TransitionFacts,
    now: datetime,
    reader_lease: timedelta,
    grace: timedelta,
) -> TransitionStep:
    stays = {
        RenameState.DRAINING: reader_lease,
        RenameState.BOTH_SHOWN: grace,
        RenameState.DRAINING_FORMER: reader_lease,
    }
    begun = facts.since if rename.state in SHOWS_FORMER or facts.shown is None else max(facts.since, facts.shown)
    end = begun + stays.get(rename.state, timedelta())
    until = f"until {end:%Y-%m-%d %H:%M}Z"
    match rename.state:
        case RenameState.DRAINING if now < end:
            return TransitionStep(to=to, reason=f"readers may use older objects {until}")
        case RenameState.BOTH_SHOWN | RenameState.DRAINING_FORMER if facts.shown is None:
            return TransitionStep(to=to, reason="a catalog does not show the present state yet")
        case RenameState.BOTH_SHOWN if now < end:
            return TransitionStep(to=to, reason=f"Glue shows both names {until}")
        case RenameState.DRAINING_FORMER if now < end:
            return TransitionStep(to=to, reason=f"readers may use the former name {until}")
    return TransitionStep(to=to)
