"""Records of erasures in the lake. A record contains time and table of an erasure, and nothing about the person.

The rule is only in PostgreSQL, so a restore of PostgreSQL may lose it. The record in the lake stays, so a comparison
finds erasures missing in a restored database.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from prism_assets.domain.text import listed

MARGIN = timedelta(days=1)
"""The largest clock difference assumed between a PostgreSQL server and its successor."""
_TIME = "%Y%m%dT%H%M%S%fZ"
_NAME = re.compile(
    r"(?P<time>[0-9]{8}T[0-9]{12}Z)-(?P<digest>[0-9a-f]{64})-(?P<folder>[0-9a-f]{4}\.[a-z0-9_]+\.[a-z0-9_]+)\.json"
)


class RecordState(enum.Enum):
    """The state of a recorded erasure in PostgreSQL."""

    ANNOUNCED = "announced"
    """PostgreSQL has the rules, not yet in force. A worker writes the record, or has just written it."""
    IN_FORCE = "in_force"
    MISSING = "missing"
    """PostgreSQL was restored to an earlier time, or the rule was never stored after the record."""
    REPEATED = "repeated"
    """PostgreSQL had lost the erasure, and the rule is in force again. Objects may still hold matching rows."""
    WITHDRAWN = "withdrawn"
    """A person decided against a repetition."""


@dataclass(frozen=True, order=True)
class ErasureRecord:
    """The record of one erasure. Its name contains everything, so a listing is enough."""

    create_time: datetime
    digest: str
    folder: str
    """The table's folder in the lake; for a join table, the records' folder. A rename does not change it."""

    @property
    def name(self) -> str:
        """The object's name. Names sort by time."""
        return f"{self.create_time.astimezone(timezone.utc).strftime(_TIME)}-{self.digest}-{self.folder}.json"

    @classmethod
    def parse(cls, name: str) -> ErasureRecord | None:
        """Reads a record from its name, or returns None for other names."""
        match = _NAME.fullmatch(name)
        if match is None:
            return None
        time = datetime.strptime(match["time"], _TIME).replace(tzinfo=timezone.utc)
        return cls(time, match["digest"], match["folder"])


def name_before(time: datetime) -> str:
    """Returns a name that sorts before all records from this time on."""
    return time.astimezone(timezone.utc).strftime(_TIME)


@dataclass(frozen=True, kw_only=True)
class HeldErasure:
    """A recorded erasure blocks its table: PostgreSQL lacks the erasure, or a repetition has not ended."""

    record: ErasureRecord
    state: RecordState
    table: str
    """The table to erase from; for a join table, its records."""
    columns: tuple[str, ...] = ()

    @property
    def is_missing(self) -> bool:
        """Whether a person must repeat or withdraw the erasure."""
        return self.state is RecordState.MISSING

    @property
    def says(self) -> str:
        """The fact."""
        time = f"{self.record.create_time:%Y-%m-%d %H:%M}Z"
        if not self.is_missing:
            return f"the erasure of {time} from {self.table} was repeated, and objects may still hold rows of it"
        by = f" by {listed(self.columns, len(self.columns))}" if self.columns else ""
        return (
            f"PostgreSQL lacks the erasure of {time}{by} from {self.table}, which the lake records: it was restored to "
            "an earlier time. Nothing is done with the table, so that no erased row comes back"
        )

    @property
    def remedy(self) -> str:
        """How to end the block."""
        if not self.is_missing:
            return "`prism erase --continue` goes on with it, and nothing else is done with the table until then"
        return (
            f'Repeat the erasure with `prism erase {self.table} --where "..."` (its HMAC was {self.record.digest}), '
            f"or, if it is not to be repeated, `prism erase {self.table} --withdraw {self.record.digest[:12]}`"
        )

    def __str__(self) -> str:
        return f"{self.says}. {self.remedy}"
