"""Records of erasures in the lake. A record says when an erasure was made and of which table, and nothing about whom.

A rule stands in PostgreSQL alone, and a restore of PostgreSQL may take it back. The record in the lake stays, so a
comparison finds the erasures that a restored database lacks.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from prism_assets.domain.words import listed

MARGIN = timedelta(days=1)
"""How far clocks of a server of PostgreSQL and its successor may lie apart."""
_TIME = "%Y%m%dT%H%M%S%fZ"
_NAME = re.compile(
    r"(?P<time>[0-9]{8}T[0-9]{12}Z)-(?P<digest>[0-9a-f]{64})-(?P<folder>[0-9a-f]{4}\.[a-z0-9_]+\.[a-z0-9_]+)\.json"
)


class RecordState(enum.Enum):
    """The state of a recorded erasure in PostgreSQL."""

    ANNOUNCED = "announced"
    """Its rules are stored, and not in force yet: the record is about to be written, or just was."""
    IN_FORCE = "in_force"
    MISSING = "missing"
    """PostgreSQL was set back to before it, or the record was written and the rule never stored."""
    REPEATED = "repeated"
    """It was missing, its rule is in force again, and objects may still hold rows of it."""
    WITHDRAWN = "withdrawn"
    """A person decided that it is not to be repeated."""


@dataclass(frozen=True, order=True)
class ErasureRecord:
    """The record of one erasure. Its name says all of it, so that a listing tells which erasures there are."""

    create_time: datetime
    digest: str
    folder: str
    """The folder of its table in the lake, of a join table that of its records. It stays when the table is renamed."""

    @property
    def name(self) -> str:
        """The name of the object, in the order of time."""
        return f"{self.create_time.astimezone(timezone.utc).strftime(_TIME)}-{self.digest}-{self.folder}.json"

    @classmethod
    def parse(cls, name: str) -> ErasureRecord | None:
        """Reads a record from its name; None if this is the name of no record."""
        match = _NAME.fullmatch(name)
        if match is None:
            return None
        time = datetime.strptime(match["time"], _TIME).replace(tzinfo=timezone.utc)
        return cls(time, match["digest"], match["folder"])


def name_before(time: datetime) -> str:
    """A name that sorts before all records of this time and of later times."""
    return time.astimezone(timezone.utc).strftime(_TIME)


@dataclass(frozen=True, kw_only=True)
class HeldErasure:
    """An erasure that keeps a table from work: PostgreSQL lacks it, or it was repeated and has not ended yet."""

    record: ErasureRecord
    state: RecordState
    table: str
    """The table to erase from: of a join table its records."""
    columns: tuple[str, ...] = ()

    @property
    def is_missing(self) -> bool:
        """Whether a person has to repeat it, or withdraw it."""
        return self.state is RecordState.MISSING

    def __str__(self) -> str:
        time = f"{self.record.create_time:%Y-%m-%d %H:%M}Z"
        if not self.is_missing:
            return (
                f"the erasure of {time} from {self.table} was repeated, and objects may still hold rows of it: "
                "`prism erase --continue` goes on with it, and nothing else is done with the table until then"
            )
        by = f" by {listed(self.columns, len(self.columns))}" if self.columns else ""
        return (
            f"PostgreSQL lacks the erasure of {time}{by} from {self.table}, which the lake records: it was set back to "
            "before that. Nothing is done with the table, so that no erased row comes back: repeat the erasure with "
            f'`prism erase {self.table} --where "..."` (its HMAC was {self.record.digest}), or, if it is not to be '
            f"repeated, `prism erase {self.table} --withdraw {self.record.digest[:12]}`"
        )
