"""Quoted names and texts, read back by DuckDB."""

from __future__ import annotations

import duckdb
import pytest

from prism_assets.domain.sql_quoting import quote_identifier, quote_text

STRANGE = ("dt", "select", 'a"b', '""', "it's", "''", "a.b", "a b", "лог", "--", "; drop")


@pytest.mark.parametrize("name", STRANGE)
def test_a_quoted_name_is_the_name_of_the_column(name: str) -> None:
    with duckdb.connect() as connection:
        columns = connection.execute(f"SELECT 1 AS {quote_identifier(name)}").description or []
    assert [column[0] for column in columns] == [name]


@pytest.mark.parametrize("text", [*STRANGE, ""])
def test_a_quoted_text_is_the_text(text: str) -> None:
    with duckdb.connect() as connection:
        assert connection.execute(f"SELECT {quote_text(text)}").fetchone() == (text,)


def test_the_parts_of_a_name_are_quoted_one_by_one() -> None:
    assert quote_identifier("log", 'a"b') == '"log"."a""b"'
