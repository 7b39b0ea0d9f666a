"""Answers a query that names a column by its former or coming name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from prism_assets.cli.options import open_context
from prism_assets.domain.errors import PrismError, WrongUse
from prism_assets.settings import has_database


@contextmanager
def explaining_renames() -> Iterator[None]:
    """Replaces the error for an unknown column by its current name, if PostgreSQL knows the given name."""
    from prism_assets.reading.query import UnknownColumn

    try:
        yield
    except UnknownColumn as error:
        if told := _find_rename(error.column, error.tables):
            raise WrongUse(f"the query is wrong: {told}") from error
        raise


def _find_rename(column: str, tables: tuple[str, ...]) -> str | None:
    """Returns a sentence about a name, or None if PostgreSQL does not answer; the query's own error then stands."""
    if not has_database():
        return None
    from prism_assets.stages.column_names import names_for_readers

    with suppress(PrismError):
        context = open_context(True)
        found = [names[column] for name in tables if column in (names := names_for_readers(context, name))]
        return found[0] if found else None
    return None
