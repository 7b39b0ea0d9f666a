"""The version of the stored schema beside the version that this code makes.

A minor release has one migration, numbered by one more than that of the release before it. A migration leaves what the
statements of the release before it need: columns are dropped by the migration after the release that no longer reads
them. So code works on the schema of the next release, too, and processes are replaced one after the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, text

from prism_assets.domain.errors import OldSchema, WrongSchema

_VERSIONS = Path(__file__).parent / "migrations" / "versions"
AHEAD = 1
"""The most releases by which the schema may be ahead of the code."""


@dataclass(frozen=True, kw_only=True)
class SchemaVersion:
    """The stored schema and the code."""

    stored: int
    """0 before the first migration."""
    known: int
    """The newest migration of the code."""

    @property
    def notice(self) -> str | None:
        """A sentence where the schema is of the next release, and the code still works on it."""
        if 0 < self.stored - self.known <= AHEAD:
            return (
                f"the tables of PostgreSQL have version {self.stored}, and this code makes {self.known}: install the "
                "new release here, too"
            )
        return None

    @property
    def too_old(self) -> str | None:
        """A sentence where this code has to migrate the schema before it can work."""
        if self.stored == 0:
            return "the database has no prism tables of this version yet: run `prism table apply` first"
        if self.stored < self.known:
            return (
                f"the tables of PostgreSQL have version {self.stored}, and this code needs {self.known}: run "
                "`prism table apply` first"
            )
        return None

    @property
    def too_new(self) -> str | None:
        """A sentence where a later release than the next one has migrated the schema."""
        if self.stored > self.known + AHEAD:
            return (
                f"the tables of PostgreSQL have version {self.stored}, which this code does not know, as it makes "
                f"{self.known}: install the release that ran the last `prism table apply`"
            )
        return None

    def check(self) -> None:
        """Raises WrongSchema where the code can do nothing with the schema, OldSchema where it has to be migrated."""
        if self.too_old:
            raise OldSchema(self.too_old)
        if self.too_new:
            raise WrongSchema(self.too_new)

    @classmethod
    def of(cls, stored: str | None) -> SchemaVersion:
        """Compares a number in alembic_version with this code. WrongSchema if the tables are another program's."""
        if stored is not None and not stored.isdecimal():  # Dagster keeps its versions in a table of the same name
            raise WrongSchema(
                "the database has the tables of another program, such as Dagster: give prism one of its own"
            )
        known = max(int(path.name.partition("_")[0]) for path in _VERSIONS.glob("[0-9]*.py"))
        return cls(stored=int(stored or 0), known=known)


STORED = "(SELECT max(version_num) FROM alembic_version)"
"""The expression for the stored number. Fails before the first migration."""


def load_schema_version(connection: Connection) -> SchemaVersion:
    """Compares stored schema and code, also before the first migration. Reads without locks."""
    if not connection.execute(text("SELECT to_regclass('alembic_version') IS NOT NULL")).scalar_one():
        return SchemaVersion.of(None)
    return SchemaVersion.of(connection.execute(text(f"SELECT {STORED}")).scalar())
