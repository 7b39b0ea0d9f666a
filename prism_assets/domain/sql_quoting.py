"""Quotes names and texts for SQL, by the rules that PostgreSQL, DuckDB, Redshift and Athena share."""

from __future__ import annotations


def quote_identifier(*parts: str) -> str:
    """Returns a name as an identifier, with a dot between its parts: `"log"."events"`."""
    return ".".join('"' + part.replace('"', '""') + '"' for part in parts)


def quote_text(text: str) -> str:
    """Returns a text as a literal: `'it''s'`."""
    return "'" + text.replace("'", "''") + "'"
