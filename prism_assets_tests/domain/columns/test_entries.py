"""Columns, keep and reject of table files: what is stored of them, and what is wrong with them."""

from __future__ import annotations

import pytest

from prism_assets.domain.errors import DefinitionError
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.tables.file import parse_table_file
from prism_assets_tests.builders import a_table

COLUMNS = (
    '{name: user, type: bigint, source: "$.user.id"}',
    "{name: email, type: string, source: [email, mail], stored: false, sensitive: true}",
    "{name: digest, type: string, value: sha256(email)}",
)
CONDITIONS = "keep: true\nreject: [{when: user < 0, reason: negative}]\n"


def test_everything_is_stored_and_read_again() -> None:
    table = parse_table_file(a_table(columns=COLUMNS) + CONDITIONS, "t.yaml")
    assert [column.name for column in table.columns] == ["time", "id", "user", "digest"]
    assert (table.keep, table.reject[0].reason, table.computed) == ("true", "negative", ("digest",))
    assert table.unstored[0].sources == ("email", "mail")
    assert TableDefinition.from_json(table.to_json()) == table
    assert table.for_tasks().unstored == table.unstored


def test_plain_tables_are_stored_as_they_always_were() -> None:
    text = parse_table_file(a_table(), "t.yaml").to_json()
    assert not any(word in text for word in ("unstored", "computed", "keep", "reject", "sources", "sensitive", "value"))


MISTAKES = {
    "both": ("{name: x, type: string, source: a, value: b}", "columns[2].source: a column has a source or a value"),
    "a typo": ("{name: x, type: string, valeu: b}", "columns[2].valeu: is not a known field"),
    "no path": ("{name: x, type: string, source: $.a..b}", "columns[2].source: $.a..b is no path at its character 4"),
    "rest as number": (
        '{name: x, type: bigint, source: "*"}',
        "columns[2].source: several keys together",
    ),
    "empty": ('{name: x, type: string, value: " "}', "columns[2].value: must be an SQL expression"),
    "a list": ("{name: x, type: string, value: [1]}", "columns[2].value: must be an SQL expression"),
    "required": ("{name: x, type: string, stored: false, required: true}", "columns[2].required: only stored columns"),
    "no keys": ("{name: x, type: string, source: []}", "columns[2].source: must be a key, or a list of keys"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_in_a_column_is_told_with_its_line(name: str) -> None:
    column, message = MISTAKES[name]
    with pytest.raises(DefinitionError) as refused:
        parse_table_file(a_table(columns=[column]), "t.yaml")
    assert f"t.yaml:11: {message}" in str(refused.value)


def test_a_typo_comes_with_what_was_meant() -> None:
    with pytest.raises(DefinitionError, match="did you mean value"):
        parse_table_file(a_table(columns=["{name: x, type: string, valeu: b}"]), "t.yaml")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("reject: [{when: id < 0, reason: too_old}]", "too_old is a built-in reason; choose another"),
        ("reject: [{when: id < 0, reason: Too Old}]", "reject\\[0\\].reason"),
        ("keep: []", "keep: must be an SQL expression"),
    ],
)
def test_a_mistake_in_a_condition_is_told(more: str, message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        parse_table_file(a_table() + more + "\n", "t.yaml")


def test_sensitive_columns_are_not_among_those_whose_bounds_are_recorded() -> None:
    column = "{name: x, type: string, sensitive: true}"
    with pytest.raises(DefinitionError, match=r"merge\.sort_by: x is sensitive"):
        parse_table_file(a_table(columns=[column], merge="{sort_by: [time, x]}"), "t.yaml")
