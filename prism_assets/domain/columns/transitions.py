"""Transitions of a renamed or widened column for readers of Glue, who look up columns in each object.

Rename: new objects hold the column under both names, and older objects are rewritten. Once readers see no other object,
Glue shows the new name, at first beside the former one.

Widening: no reader may find wider values under a narrower type. Merged objects are copied with the new type, unseen by
readers. Then no new batch begins until everything else is merged and copied, and the copies replace all objects at once
(the flip). If failing reads of strict readers are accepted, Glue shows the new type first, because other readers accept
narrower values. Then objects get it, and older ones are rewritten.

Each state is a version of the definition, so everything that depends on the definition follows. `next_step` alone
decides; runs carry out its answer, and status shows it.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from prism_assets.domain.columns.types import ColumnType
from prism_assets.domain.merges.plan import REWRITES, REWRITTEN_DAYS
from prism_assets.domain.text import counted


class RenameState(str, enum.Enum):
    """The state of a rename."""

    __str__ = str.__str__  # as StrEnum, which Python 3.10 lacks

    REWRITING = "rewriting"
    """Some older objects have only the former name, and Glue shows the former name."""
    DRAINING = "draining"
    """All objects have both names. Readers may still use older objects from earlier publications."""
    BOTH_SHOWN = "both_shown"
    """Glue shows both names."""
    DRAINING_FORMER = "draining_former"
    """Glue shows only the new name. Objects still have both, for readers that started earlier."""


NEXT_STATE = {
    RenameState.REWRITING: RenameState.DRAINING,
    RenameState.DRAINING: RenameState.BOTH_SHOWN,
    RenameState.BOTH_SHOWN: RenameState.DRAINING_FORMER,
    RenameState.DRAINING_FORMER: None,
}
SHOWS_FORMER = frozenset({RenameState.REWRITING, RenameState.DRAINING})
"""States in which Glue shows only the former name."""


@dataclass(frozen=True, kw_only=True)
class ColumnRename:
    """A column was called `former`. Objects have a copy of it under this name, which is no column of its own."""

    former: str
    state: RenameState
    version: int
    """Objects written under this definition version or later have both names."""
    since: int
    """The definition version that began the state."""

    @property
    def is_rewriting(self) -> bool:
        """Whether older objects are still to be rewritten."""
        return self.state is RenameState.REWRITING


class WideningState(str, enum.Enum):
    """The state of a widening."""

    __str__ = str.__str__

    COPYING = "copying"
    """Merged objects of all days are copied with the new type. Readers see the old type."""
    FLIPPING = "flipping"
    """No batch begins. All days are closed, merged and copied, until the copies replace the objects."""
    SHOWING = "showing"
    """Glue shall show the new type. Objects are written with the old one."""
    REWRITING = "rewriting"
    """Glue shows the new type and new objects have it. Older objects have the narrow one."""


@dataclass(frozen=True, kw_only=True)
class ColumnWidening:
    """A column had the narrower type `former`. Objects from before `version` of the definition have its values.

    If the column is widened again before all objects are rewritten, `former` is the first type and `version` the last.
    """

    former: ColumnType
    version: int
    shown_first: ColumnType | None = None
    """A type that Glue shows before objects have it. Until then the column keeps its old type in objects."""
    copy_type: ColumnType | None = None
    """A type with which merged objects are copied. Until the flip the column keeps its old type in objects."""
    is_flipping: bool = False
    flip_version: int = 0
    """The version in which the last flip began or was given up. 0 before the first."""
    flip_seconds: int = 0
    """How long new objects wait for the flip at most."""

    @property
    def flip_limit(self) -> timedelta:
        """How long new objects wait for the flip at most. An hour if no limit is stored."""
        return timedelta(seconds=self.flip_seconds) or FLIP_LIMIT

    @property
    def state(self) -> WideningState:
        """The state of the widening."""
        if self.copy_type:
            return WideningState.FLIPPING if self.is_flipping else WideningState.COPYING
        return WideningState.SHOWING if self.shown_first else WideningState.REWRITING

    @property
    def wanted_type(self) -> ColumnType | None:
        """The target type, or None once objects have it."""
        return self.shown_first or self.copy_type

    @property
    def since(self) -> int:
        """The version that began the state."""
        return max(self.version, self.flip_version)

    @property
    def is_rewriting(self) -> bool:
        """Whether older objects are still to be rewritten."""
        return self.state is WideningState.REWRITING


ColumnTransition = ColumnRename | ColumnWidening


@dataclass(frozen=True, kw_only=True)
class ObjectsLeft:
    """Objects and days in readers' reach, now or soon, that lack the new name or type.

    Before a flip this is everything except merged objects with a copy, and everything that may still become such.
    """

    merged: int = 0
    """Merged objects of closed days, to be rewritten."""
    uncopied: int = 0
    """Merged objects without a copy, while copies are made."""
    unswitched_days: int = 0
    """Closed days whose readers still use small objects, while copies are made."""
    small: int = 0
    """Small objects of closed days, to be merged."""
    in_open_days: int = 0
    """Objects of open days to wait for, except copied ones."""
    staging: int = 0
    """Staging objects claimed under an earlier definition."""
    unpublished_days: int = 0
    """Days for which a catalog shows older objects, or may show them after an unrecorded publication."""
    publications: int = 0
    """Publications without a known end."""
    merges: int = 0
    """Waiting or running merges, while copies are made."""
    failing_merges: int = 0
    """Merges whose last attempt failed."""
    first_day: date | None = None
    last_day: date | None = None

    @property
    def is_empty(self) -> bool:
        """Whether all objects have the new name or type, or a copy with it."""
        return not any(number for name, number in vars(self).items() if name not in ("first_day", "last_day"))

    def __str__(self) -> str:
        return ", ".join(self._parts())

    def _parts(self) -> Iterator[str]:
        if self.merged:
            yield f"{counted(self.merged, 'merged object')} to be rewritten"
        if self.uncopied:
            yield f"{counted(self.uncopied, 'merged object')} to be copied"
        if self.unswitched_days:
            yield f"{counted(self.unswitched_days, 'closed day')} whose readers do not use merged objects yet"
        if self.small:
            yield f"{counted(self.small, 'small object')} to be merged"
        if self.in_open_days:
            yield f"{counted(self.in_open_days, 'object')} of open days"
        if self.staging:
            yield f"{counted(self.staging, 'staging object')} claimed earlier, to be converted"
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
    """Facts for a decision beside the state."""

    begun: datetime
    """When the transition began."""
    since: datetime
    """When the state began."""
    left: ObjectsLeft
    shown: datetime | None
    """Since when every catalog shows the state. None while one does not, or while an earlier call may still change it.
    """


@dataclass(frozen=True, kw_only=True)
class TransitionStep:
    """The next catalog run's step in a transition."""

    to: RenameState | WideningState | None
    """The next state, or None for the end."""
    reason: str = ""
    """Why the step must wait. Empty if it is due."""
    flip_limit: timedelta = timedelta()
    """How long new objects wait at most for a flip that begins."""

    @property
    def is_due(self) -> bool:
        """Whether the next run takes the step."""
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
    """Returns the step that ends the current state of a rename or widening, due or not.

    New objects follow the current definition, so once nothing is left, nothing is added. Times of Glue's states count
    from when the last catalog shows them, perhaps long after the definition took effect. If a person asks for it, a
    flip given up earlier begins at once.
    """
    if isinstance(transition, ColumnWidening) and transition.state is not WideningState.REWRITING:
        return _next_widening_step(transition, facts, now, is_asked_for=is_asked_for)
    to = NEXT_STATE[transition.state] if isinstance(transition, ColumnRename) else None
    if transition.is_rewriting and not facts.left.is_empty:
        return TransitionStep(to=to, reason=f"older objects are left: {facts.left}")
    if isinstance(transition, ColumnWidening):
        return TransitionStep(to=to)
    return _next_rename_step(transition, to, facts, now, reader_lease, grace)


_NOT_SHOWN = "not every catalog shows it yet, and until then new objects keep the old type"
FLIP_LIMIT = timedelta(hours=1)
"""The longest wait of new objects for a flip while catalog runs come. No batch begins during this time."""
_FLIP_LEAST = timedelta(minutes=10)
"""The wait in a table with few objects. A few runs of each stage take no longer."""
_FLIP_EACH = timedelta(seconds=10)
"""Each object to be merged or copied adds this to the wait."""
FLIP_PAUSE = timedelta(days=1)
"""How long after giving up a flip it begins again by itself."""
MOST_UNCOPIED_TO_BEGIN = REWRITTEN_DAYS * REWRITES
"""A flip begins with at most this many uncopied merged objects, as many as one merge run copies. Late rows cause
rewrites all the time, so waiting for zero could take for ever.
"""


def _next_widening_step(
    widening: ColumnWidening, facts: TransitionFacts, now: datetime, *, is_asked_for: bool
) -> TransitionStep:
    """Returns the next step of a copied widening. A flip has a time limit, so a failing merge cannot block new rows for
    ever.

    If every object has a copy already and open days have no objects, nothing waits for the flip.
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
    if reason := _flip_obstacle(facts.left):
        return TransitionStep(to=WideningState.FLIPPING, reason=reason)
    # After a flip that did not end within its first limit, the next try gets the longest one.
    limit = FLIP_LIMIT if widening.flip_version else flip_limit(facts.left)
    return TransitionStep(to=WideningState.FLIPPING, flip_limit=limit)


def flip_limit(left: ObjectsLeft) -> timedelta:
    """Returns how long new objects wait at most for a flip with these objects left."""
    objects = left.uncopied + left.small + left.in_open_days + left.staging
    return min(FLIP_LIMIT, _FLIP_LEAST + objects * _FLIP_EACH)


def flip_outlook(table: str, left: ObjectsLeft) -> str:
    """Describes, before a widening begins, how its flip would affect open days with their current objects."""
    if not left.in_open_days and not left.staging:
        return (
            f"flip {table} at once when all have a copy, if open days have no object then, as now: no day closes "
            "early, and no new object waits"
        )
    minutes = flip_limit(left).total_seconds() / 60
    return (
        f"flip {table} when all have a copy: its open days close at once, today included, and new objects wait for at "
        f"most {minutes:.0f} minutes; later rows of these days are late, and become readable with the next catalog run"
    )


def _flip_obstacle(left: ObjectsLeft) -> str:
    """Returns why a flip would block new rows for long or in vain, or ""."""
    if left.uncopied > MOST_UNCOPIED_TO_BEGIN:
        return f"merged objects are being copied with it: {counted(left.uncopied, 'object')} left"
    blocking = ObjectsLeft(
        unswitched_days=left.unswitched_days, failing_merges=left.failing_merges, publications=left.publications
    )
    return "" if blocking.is_empty else f"the flip to it waits for {blocking}"


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
            return TransitionStep(to=to, reason="not every catalog shows the current state yet")
        case RenameState.BOTH_SHOWN if now < end:
            return TransitionStep(to=to, reason=f"Glue shows both names {until}")
        case RenameState.DRAINING_FORMER if now < end:
            return TransitionStep(to=to, reason=f"readers may use the former name {until}")
    return TransitionStep(to=to)
