"""Every command takes names of tables as words, and after --table."""

from __future__ import annotations

from typing import Any

import pytest
import typer.main

from prism_assets.cli import app
from prism_assets_tests.builders import a_table
from prism_assets_tests.command.prism import Prism
from prism_assets_tests.command.test_commands import every_command


@pytest.fixture
def two(prism: Prism) -> Prism:
    """With two tables."""
    prism.world.apply(a_table("log.a"), a_table("log.b"))
    return prism


OF_OTHER_TABLES = (("init",), ("adopt", "audit"), ("adopt", "tables"))
"""Commands that name tables which do not exist yet, or those of another installation."""


def parameters(words: tuple[str, ...]) -> list[Any]:
    command: Any = typer.main.get_command(app)
    for word in words:
        command = command.commands[word]
    return list(command.params)


def test_every_command_takes_names_of_tables_both_ways() -> None:
    for words in every_command(typer.main.get_command(app)):
        found = parameters(words)
        as_words = any((getattr(item, "help", "") or "").startswith(("schema.table", "Only this schema.table."))
                       and not item.opts[0].startswith("-") for item in found)  # fmt: skip
        if words not in OF_OTHER_TABLES:
            assert as_words == any("--table" in item.opts for item in found), words


@pytest.mark.parametrize(
    "command", [("status",), ("merge", "--dry-run"), ("quarantine", "list"), ("iceberg", "status")]
)
def test_commands_of_many_tables_take_words_and_options(two: Prism, command: tuple[str, ...]) -> None:
    by_option = two.ok(*command, "--table", "log.a", "--json")
    assert two.ok(*command, "log.a", "--json") == by_option
    both = two.ok(*command, "--table", "log.a", "--table", "log.b", "--json")
    assert (
        two.ok(*command, "log.a", "log.b", "--json") == two.ok(*command, "log.a", "--table", "log.b", "--json") == both
    )
    done = two(*command, "log.c")
    assert (done.status, done.err) == (2, "prism: there is no table log.c (there are: log.a, log.b)\n")


@pytest.mark.parametrize("command", [("table", "show"), ("erase", "--status"), ("table", "drift")])
def test_commands_of_one_table_take_a_word_or_an_option(two: Prism, command: tuple[str, ...]) -> None:
    assert (
        two.ok(*command, "--table", "log.a") == two.ok(*command, "log.a") == two.ok(*command, "log.a", "--table=log.a")
    )
    done = two(*command, "log.a", "--table", "log.b")
    assert (done.status, done.out) == (2, "")
    assert done.err == "prism: log.a and log.b are two tables, and this command takes one. Nothing was done\n"


@pytest.mark.parametrize("command", [("rebuild",), ("table", "show"), ("files",), ("join", "advise")])
def test_a_command_that_needs_a_table_asks_for_it(two: Prism, command: tuple[str, ...]) -> None:
    done = two(*command)
    assert (done.status, done.out) == (2, "")
    assert done.err == "prism: name a table: schema.table, as a word or after --table. Nothing was done\n"
