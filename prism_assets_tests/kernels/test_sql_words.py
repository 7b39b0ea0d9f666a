"""Columns named like words of SQL, without quotes in expressions."""

from __future__ import annotations

import pytest

from prism_assets.kernels.expressions.session import connect
from prism_assets.kernels.expressions.tree import ExpressionError, check

COLUMNS = {"order", "user", "end", "from", "group", "default", "left", "id"}


@pytest.mark.parametrize(
    ("expression", "word", "character"),
    [
        ("order", "order", 1),
        ("order + 1", "order", 1),
        ("end - id", "end", 1),
        ("case when id = 1 then end end", "end", 23),
        ("ORDER = 1 or order = 2", "ORDER", 1),
        ("'é' || from", "from", 8),
        ("\"order\" = 1 and 'order' = group", "group", 27),
        ("left = 'x'", "left", 1),
        ("default", "default", 1),
    ],
)
def test_a_word_of_sql_that_is_a_column_is_named_with_its_quotes(expression: str, word: str, character: int) -> None:
    with pytest.raises(ExpressionError) as error, connect() as connection:
        check(connection, expression, COLUMNS)
    assert str(error.value).removeprefix("this is no SQL expression: ") == (
        f'{word} is a word of SQL: write "{word.lower()}" where it names a column (at character {character})'
    )


@pytest.mark.parametrize("expression", ['"order" + 1', "user", "left('abc', id)", 'case when id = 1 then "end" end'])
def test_quotes_and_functions_are_read_as_they_are(expression: str) -> None:
    with connect() as connection:
        assert check(connection, expression, COLUMNS).columns <= COLUMNS
