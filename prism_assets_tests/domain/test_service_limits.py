"""Limits of services are told with file, line and field, before anything is applied."""

from __future__ import annotations

import pytest

from prism_assets.domain.errors import DefinitionError, SettingsError
from prism_assets.domain.names import LONGEST_NAME
from prism_assets.domain.records.change_log import tables_of
from prism_assets.domain.service_limits import GLUE_DESCRIPTION, GLUE_NAME, LONGEST_AFFIX, MOST_COLUMNS, length_of
from prism_assets.domain.tables.file import parse_table_file
from prism_assets.settings import SYMLINK_SUFFIX, ReaderSettings, load
from prism_assets_tests.builders import a_table
from prism_assets_tests.requests import a_join_table


def refusal(text: str) -> str:
    with pytest.raises(DefinitionError) as raised:
        parse_table_file(text, "t.yaml")
    return str(raised.value)


def described(text: str) -> str:
    return a_table().replace("description: a test table", f'description: "{text}"')


def columns(count: int) -> str:
    return a_table(columns=[f"{{name: c{number}, type: bigint}}" for number in range(count - 2)])


def test_a_description_of_a_table_that_is_too_long_is_told_in_bytes() -> None:
    assert parse_table_file(described("x" * GLUE_DESCRIPTION), "t.yaml").description
    assert refusal(described("é" * 1_025)) == (
        "t.yaml:3: description: has 2,050 bytes, and Glue takes 2,048 for a table; shorten it"
    )


def test_a_description_with_control_characters_is_refused_and_lines_are_not() -> None:
    assert parse_table_file(described("a\\nb\\tc"), "t.yaml").description == "a\nb\tc"
    assert "has control characters, which Glue does not take" in refusal(described("a\\x07b"))


def test_an_owner_and_the_description_of_a_column_are_counted_in_bytes_too() -> None:
    long = a_table().replace("owner: team:test", f"owner: team:{'é' * 126}")
    assert refusal(long) == "t.yaml:4: owner: must have at most 255 bytes: Glue takes no longer one"
    column = f"{{name: c, type: bigint, description: {'é' * 128}}}"
    assert refusal(a_table(columns=[column])) == (
        "t.yaml:11: columns[2].description: must have at most 255 bytes: Glue takes no longer comment"
    )


def test_a_table_with_more_columns_than_redshift_spectrum_reads_is_refused() -> None:
    assert len(parse_table_file(columns(MOST_COLUMNS), "t.yaml").columns) == MOST_COLUMNS
    assert refusal(columns(MOST_COLUMNS + 1)).startswith(
        "t.yaml:9: columns: a table has at most 1,596 columns, and this one has 1,597: Redshift Spectrum reads none"
    )


def test_a_contract_adds_no_column_that_the_services_do_not_take() -> None:
    text = a_table() + f"contract: {{new_fields: evolve, most_columns: {MOST_COLUMNS + 1}}}\n"
    assert "contract.most_columns: must lie between 1 and 1596" in refusal(text)


def test_the_log_of_a_join_table_has_a_description_that_glue_takes() -> None:
    file = a_join_table(more=f"description: {'é' * 1_024}\n")
    log = tables_of(parse_table_file(file, "t.yaml"))[-1]
    assert length_of(log.description) <= GLUE_DESCRIPTION
    assert log.description.startswith("Changes of log.request: éé")


def test_the_longest_name_of_a_database_is_one_that_glue_takes() -> None:
    assert 2 * LONGEST_AFFIX + LONGEST_NAME + len(SYMLINK_SUFFIX) <= GLUE_NAME
    with pytest.raises(SettingsError, match=r"(?i)glue_database_prefix"):
        load(ReaderSettings, glue_database_prefix="x" * (LONGEST_AFFIX + 1))
