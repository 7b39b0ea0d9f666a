"""Renders the table of readers and answers for a terminal and for docs/readers.md and docs/reader-lines.md."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import date
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from prism_local.readers.answers import Judged, Outcome
from prism_local.readers.known import READERS
from prism_local.readers.questions import EXPLAINED, Question

_COLOURS = {
    Outcome.RIGHT: "green",
    Outcome.TRAP: "yellow",
    Outcome.WRONG: "red bold",
    Outcome.FAILED: "red",
    Outcome.NOT_RUN: "dim",
}
_PLAIN = (Outcome.RIGHT, Outcome.NOT_RUN)
_LINES = re.compile(r"^# lines\n(.*?)^# end$", re.DOTALL | re.MULTILINE)
RESULTS = "readers"
"""The name of the table's part in docs/readers.md."""


def terminal_table(judged: Iterable[Judged]) -> Table:
    """Returns a row for each reader and a column for each question."""
    grid = Table("reader", "version", *(question.value for question in Question), box=None, padding=(0, 2, 0, 0))
    for reader in judged:
        grid.add_row(escape(reader.name), escape(reader.version), *_coloured(reader))
    return grid


def _coloured(reader: Judged) -> Iterator[str]:
    for question in Question:
        outcome = reader.verdicts[question].outcome
        yield f"[{_COLOURS[outcome]}]{outcome.value}[/]"


def reasons(judged: Iterable[Judged]) -> list[str]:
    """Returns why answers are not right, one line for each reader and reason."""
    lines = []
    for reader in judged:
        of_reason: dict[tuple[Outcome, str], list[Question]] = {}
        for question, verdict in reader.verdicts.items():
            if verdict.outcome is not Outcome.RIGHT:
                of_reason.setdefault((verdict.outcome, verdict.reason), []).append(question)
        for (outcome, reason), questions in of_reason.items():
            which = "" if len(questions) == len(Question) else f", {', '.join(item.value for item in questions)}"
            lines.append(f"{reader.name}{which}: {outcome.value}: {reason}")
    return lines


def markdown(judged: Sequence[Judged], day: date, rows: int) -> str:
    """Returns the table, the meaning of its columns, and the reasons."""
    headings = ["reader", "version", *(question.value for question in Question)]
    lines = [
        f"Run on {day} against the tables of the demo, {rows:,} rows.",
        "",
        _row(headings),
        "|---" * len(headings) + "|",
    ]
    for reader in judged:
        outcomes = [reader.verdicts[question].outcome for question in Question]
        cells = [item.value if item in _PLAIN else f"**{item.value}**" for item in outcomes]
        lines.append(_row([reader.name, reader.version, *cells]))
    lines += ["", *(f"- *{question.value}*: {EXPLAINED[question]}" for question in Question)]
    notes = reasons(judged)
    if notes:
        lines += ["", "Where it is not *right*:", "", *(f"- {line}" for line in notes)]
    return "\n".join(lines)


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def lines_to_paste(program: Path) -> str:
    """Returns the lines to paste from a reader's program, or "" if its users write no program."""
    found = _LINES.search(program.read_text(encoding="utf-8"))
    return found[1].strip() if found else ""


def with_part(document: str, name: str, content: str) -> str:
    """Replaces the content between the comments `<!-- name -->` and `<!-- /name -->`."""
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    before, found, rest = document.partition(begin)
    _, closed, after = rest.partition(end)
    if not (found and closed):
        raise ValueError(f"the document has no part between {begin} and {end}")
    return f"{before}{begin}\n{content}\n{end}{after}"


def with_lines(document: str) -> str:
    """Replaces each reader's lines in the document by those in its program."""
    for reader in READERS:
        if lines := lines_to_paste(reader.path):
            document = with_part(document, reader.program, f"```python\n{lines}\n```")
    return document
