"""Snippets of pages: table files are accepted by `prism table apply`, cases hold, commands and options exist."""

from __future__ import annotations

import ast
import importlib
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml

from prism_assets.cli import command_line
from prism_assets.domain.records.change_log import tables_of
from prism_assets.domain.tables.file import parse_table_file
from prism_assets.drafting.cases import cases_of, run_cases
from prism_assets.kernels.expressions.check import problems_of_table
from prism_assets.kernels.table_check import problems_of
from prism_assets_tests.docs.generate import DOCS, all_fields
from prism_assets_tests.kernels.protoc import descriptor_set

ROOT = DOCS.parent
PAGES = [*sorted(DOCS.glob("*.md")), ROOT / "README.md"]
LINES_TO_ROWS = (DOCS / "lines-to-rows.md").read_text()
BASE = """\
schema: log
table: signups
streams:
  - {name: s, url: "s3://staging/s/"}
columns:
  - {name: time, type: timestamp}
  - {name: kind, type: string}
  - {name: user_id, type: bigint}
  - {name: amount, type: double}
  - {name: country, type: string}
  - {name: country_code, type: string}
  - {name: agent, type: string}
  - {name: plan_id, type: string}
  - {name: contact, type: string}
  - {name: email, type: string}
"""
"""The rest of the table file around a partial snippet."""


def _snippets(language: str) -> Iterator[Any]:
    for page in PAGES:
        for number, text in enumerate(re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.DOTALL | re.M)):
            yield pytest.param(text, id=f"{page.stem}-{number}")


def _whole(snippet: str) -> str:
    """Returns a whole table file with a snippet: a list adds columns or streams, a mapping replaces keys."""
    said = yaml.safe_load(snippet)
    base: dict[str, Any] = yaml.safe_load(BASE)
    if isinstance(said, Mapping):
        return yaml.safe_dump({**base, **said})
    part = "streams" if any("url" in entry for entry in said) else "columns"
    added = {entry["name"] for entry in said} | {entry.get("was") for entry in said}
    base[part] = [*(entry for entry in base[part] if entry["name"] not in added), *said]
    return yaml.safe_dump(base)


@pytest.mark.parametrize("snippet", [*_snippets("yaml")])
def test_every_part_of_a_table_file_can_be_applied(snippet: str) -> None:
    table = parse_table_file(_whole(snippet), "t.yaml", lambda _name: descriptor_set("page.proto"))
    for one in tables_of(table) if table.join else (table,):
        if one.streams:
            assert problems_of(one) == []


def test_the_cases_of_the_docs_hold_for_the_table_of_the_docs(tmp_path: Path) -> None:
    (cases,) = re.findall(r"```\n(\{\"about\".*?)```", (DOCS / "table-file.md").read_text(), re.DOTALL)
    path = tmp_path / "signups.yaml"
    path.write_text(_table_of_lines_to_rows())
    cases_of(path).write_text(cases)
    report = run_cases(path)
    assert (report.cases, report.failures) == (5, ())


def test_a_mistake_is_reported_in_the_words_of_the_docs() -> None:
    told = re.findall(r"^(tables/log/signups\.yaml:.*)$", LINES_TO_ROWS, re.MULTILINE)
    whole = _table_of_lines_to_rows()
    for right, wrong, message in (
        ("trim(email)", "trim(emial)", told[0]),
        ('keep: "status < 500"', 'keep: "time < now()"', told[1]),
    ):
        assert whole.count(right) == 1
        mistaken = parse_table_file(whole.replace(right, wrong), "tables/log/signups.yaml")
        assert problems_of_table(mistaken) == [message]


def _table_of_lines_to_rows() -> str:
    first: str = re.findall(r"```yaml\n(.*?)```", LINES_TO_ROWS, re.DOTALL)[0]
    return first


@pytest.mark.parametrize("snippet", [*_snippets("sh")])
def test_every_command_has_its_options(snippet: str) -> None:
    for words in _commands(snippet):
        _parse(typer.main.get_command(command_line()), words)


@pytest.mark.parametrize("snippet", [*_snippets("python")])
def test_every_program_compiles_and_imports_what_there_is(snippet: str) -> None:
    tree = ast.parse(snippet)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("prism_"):
            module = importlib.import_module(str(node.module))
            assert [alias.name for alias in node.names if not hasattr(module, alias.name)] == []


@pytest.mark.parametrize("snippet", [*_snippets("toml")])
def test_every_key_of_prism_toml_is_a_setting(snippet: str) -> None:
    keys = re.findall(r"^(\w+) = ", snippet, re.MULTILINE)
    assert keys
    assert set(keys) <= set(all_fields())


def test_a_command_that_does_not_exist_is_found() -> None:
    with pytest.raises(KeyError, match="applie"):
        _parse(typer.main.get_command(command_line()), ["table", "applie"])
    with pytest.raises(Exception, match=r"No such option: --dry$"):
        _parse(typer.main.get_command(command_line()), ["gc", "--dry"])


def _commands(snippet: str) -> Iterator[list[str]]:
    for line in snippet.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words[:1] == ["prism"]:
            ends = [place for place, word in enumerate(words) if word in ("|", "||", "&", ">", "&&")]
            yield words[1 : min(ends, default=len(words))]


def _parse(command: Any, words: list[str]) -> None:
    """Parses the words of a command, down to the command itself, and runs nothing."""
    name = "prism"
    while hasattr(command, "commands"):
        command, name, words = command.commands[words[0]], f"{name} {words[0]}", words[1:]
    command.make_context(name, list(words))
