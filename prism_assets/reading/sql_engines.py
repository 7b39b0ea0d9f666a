"""SQL engines outside of prism: databases of the tables in their catalogs, and statements for Redshift and Athena."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import Enum

from prism_assets.domain.errors import WrongUse
from prism_assets.domain.names import DAY_COLUMN, did_you_mean
from prism_assets.domain.sql_quoting import quote_identifier, quote_text
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.settings import SYMLINK_SUFFIX, IcebergSettings, ReaderSettings


class SqlEngine(str, Enum):
    """A kind of engine, named after a reader of its catalog."""

    REDSHIFT = "redshift"
    """Glue with manifests."""
    ATHENA = "athena"
    """Glue with symlinks. Trino and Hive read the same."""
    ICEBERG = "iceberg"
    """The Iceberg catalog."""


_WHY_ABSENT = {
    SqlEngine.REDSHIFT: "is retired",
    SqlEngine.ATHENA: "has no `symlink: true`, so Athena does not see it",
    SqlEngine.ICEBERG: "has no `iceberg: true`, so its catalog lacks it",
}


def database_of(engine: SqlEngine, schema: str, settings: ReaderSettings, iceberg: IcebergSettings) -> str:
    """Returns the database of a schema in the engine's catalog."""
    prefix = settings.glue_database_prefix
    match engine:
        case SqlEngine.REDSHIFT:
            return f"{prefix}{schema}{settings.glue_database_suffix}"
        case SqlEngine.ATHENA:
            return f"{prefix}{schema}{settings.glue_database_suffix}{SYMLINK_SUFFIX}"
        case SqlEngine.ICEBERG:
            return f"{prefix}{schema}{iceberg.iceberg_database_suffix}"


def choose_shown(
    engine: SqlEngine, tables: Sequence[TableDefinition], names: Sequence[str] | None
) -> dict[str, list[TableDefinition]]:
    """Returns the tables in an engine's catalog by schema. Raises WrongUse for a named table outside the catalog."""
    known = {str(table.name): table for table in tables}
    for name in names or ():
        if name not in known:
            raise WrongUse(f"there is no table file of {name}{did_you_mean(name, known)}")
        if not _sees(engine, known[name]):
            raise WrongUse(f"{name} {_WHY_ABSENT[engine]}")
    found: dict[str, list[TableDefinition]] = {}
    for name in sorted(names or known):
        if _sees(engine, known[name]):
            found.setdefault(known[name].name.schema, []).append(known[name])
    if not found:
        raise WrongUse(f"no table file fits: each {_WHY_ABSENT[engine]}" if known else "there is no table file")
    return found


def _sees(engine: SqlEngine, table: TableDefinition) -> bool:
    if table.retired:
        return False
    match engine:
        case SqlEngine.REDSHIFT:
            return True
        case SqlEngine.ATHENA:
            return table.symlink
        case SqlEngine.ICEBERG:
            return table.iceberg is not None


def external_schemas(
    schemas: Iterable[str], settings: ReaderSettings, iceberg: IcebergSettings, role: str | None
) -> Iterator[str]:
    """Yields one statement of Redshift for each schema. Later tables need none, because Redshift finds them in Glue."""
    for schema in schemas:
        database = database_of(SqlEngine.REDSHIFT, schema, settings, iceberg)
        yield (
            f"CREATE EXTERNAL SCHEMA IF NOT EXISTS {quote_identifier(schema)}\n"
            f"FROM DATA CATALOG DATABASE {quote_text(database)} REGION {quote_text(settings.region)}\n"
            f"IAM_ROLE {quote_text(role) if role else 'default'};"
        )


def views(
    tables: dict[str, list[TableDefinition]], settings: ReaderSettings, iceberg: IcebergSettings, into: str
) -> Iterator[str]:
    """Yields Athena's statements: a database with a view of each table, under the table's own name.

    Athena also reads the tables without views. Views hide the names of databases. A view keeps its columns when the
    table gets more. Raises WrongUse where a view would take the place of a table, or of another view.
    """
    databases = {schema: database_of(SqlEngine.ATHENA, schema, settings, iceberg) for schema in tables}
    taken = {name for database in databases.values() for name in (database, database.removesuffix(SYMLINK_SUFFIX))}
    owners: dict[tuple[str, str], str] = {}
    for schema, shown in tables.items():
        target, database = into.replace("{schema}", schema), databases[schema]
        if target in taken:
            raise WrongUse(f"{target} is a database of prism itself: name another one by --into")
        for table in shown:
            other = owners.setdefault((target, table.name.table), str(table.name))
            if other != str(table.name):
                raise WrongUse(f"{other} and {table.name} would be one view in {target}: write {{schema}} in --into")
        yield f"CREATE DATABASE IF NOT EXISTS `{target}`;"
        for table in shown:
            columns = ", ".join(quote_identifier(name) for name in [*(c.glue_name for c in table.columns), DAY_COLUMN])
            yield (
                f"CREATE OR REPLACE VIEW {quote_identifier(target, table.name.table)} AS\n"
                f"SELECT {columns}\nFROM {quote_identifier(database, table.name.table)};"
            )
