"""The printed and the written table, and the pages of docs/ against the programs."""

from __future__ import annotations

import io
from datetime import date
from pathlib import Path

import pytest
from rich.console import Console

from prism_local.readers import sheet
from prism_local.readers.answers import Judged, Outcome, Verdict, not_run
from prism_local.readers.known import READERS
from prism_local.readers.questions import Question

DOCS = Path(__file__).parents[3] / "docs"


def a_reader(**verdicts: Verdict) -> Judged:
    """Returns a reader that is right except in the given answers."""
    right = {question: Verdict(Outcome.RIGHT) for question in Question}
    return Judged("polars", "2.1.0", right | {Question[name]: verdict for name, verdict in verdicts.items()})


def test_the_terminal_shows_a_word_for_each_question() -> None:
    out = Console(file=io.StringIO(), width=200)
    out.print(sheet.terminal_table([a_reader(ONE_DAY=Verdict(Outcome.WRONG, "0 and not 3"))]))
    assert isinstance(out.file, io.StringIO)
    heading, row = out.file.getvalue().splitlines()
    assert heading.split("  ")[0] == "reader"
    assert row.split() == ["polars", "2.1.0", "right", "right", "wrong", *["right"] * 7]


def test_one_reason_for_several_questions_is_told_once() -> None:
    failed = Verdict(Outcome.FAILED, "no route")
    assert sheet.reasons([a_reader(ALL_ROWS=failed, BY_DAY=failed)]) == ["polars, all rows, by dt: failed: no route"]
    assert sheet.reasons([not_run("Athena", "a service of AWS")]) == ["Athena: not run: a service of AWS"]
    assert sheet.reasons([a_reader()]) == []


def test_markdown_has_the_day_the_table_and_the_reasons() -> None:
    found = [a_reader(ONE_DAY=Verdict(Outcome.TRAP, "a | b")), not_run("Athena", "a service of AWS")]
    lines = sheet.markdown(found, date(2026, 11, 22), 310_000).splitlines()
    assert lines[0] == "Run on 2026-11-22 against the tables of the demo, 310,000 rows."
    assert lines[4] == f"| polars | 2.1.0 | right | right | **trap** |{' right |' * 7}"
    assert lines[-2:] == ["- polars, one dt: trap: a | b", "- Athena: not run: a service of AWS"]


def test_a_part_of_a_document_is_replaced_and_nothing_else() -> None:
    assert sheet.with_part("a\n<!-- x -->\nold\n<!-- /x -->\nb", "x", "new") == "a\n<!-- x -->\nnew\n<!-- /x -->\nb"
    with pytest.raises(ValueError, match="no part"):
        sheet.with_part("a\n<!-- x -->\nb", "x", "new")


def test_the_document_shows_the_lines_that_the_programs_run() -> None:
    text = (DOCS / "reader-lines.md").read_text()
    assert sheet.with_lines(text) == text, "scripts/readers --docs docs"


def test_the_document_names_every_reader_with_the_version_that_is_installed() -> None:
    text = (DOCS / "readers.md").read_text()
    for reader in READERS:
        assert f"| {reader.name} |" in text
        for package in reader.packages:
            name, pinned, version = package.partition("==")
            assert not pinned or version in text, name


def test_no_program_of_a_reader_imports_what_its_environment_lacks() -> None:
    for reader in READERS:
        assert "import prism" not in reader.path.read_text(), reader.name
        assert "from prism" not in reader.path.read_text(), reader.name
