"""`python -m prism_local.readers`, called by `scripts/readers`: all readers over the demo's tables."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from prism_assets.console import complain
from prism_assets.domain.errors import PrismError, WrongUse
from prism_assets.known_secrets import secret_values
from prism_assets.local_stack import local_home
from prism_assets.settings import Settings, load_settings
from prism_local.demo.play import TABLES
from prism_local.readers import environments, sheet
from prism_local.readers.answers import Judged, judged, not_run
from prism_local.readers.asking import ask
from prism_local.readers.known import ABSENT, READERS, Reader
from prism_local.readers.questions import Question
from prism_local.readers.truth import Truth, is_unchanged, read_truth

_out = Console(highlight=False, width=180)


def main(
    reader: Annotated[list[str] | None, typer.Option("--reader", help="Only this one; may be repeated.")] = None,
    install: Annotated[
        bool, typer.Option("--install", help="Make missing environments, below the local stack's folder.")
    ] = False,
    seconds: Annotated[float, typer.Option("--seconds", min=1, help="How long one reader may take.")] = 300,
    docs: Annotated[
        Path | None,
        typer.Option("--docs", exists=True, help="Also write table and lines into pages of this folder."),
    ] = None,
) -> None:
    """Reads the same tables with every installed reader. Exit status 1 if any is wrong or fails."""
    try:
        chosen = _chosen(reader)
        settings = load_settings()
        truth = read_truth(settings, TABLES)
        found = [_examined(item, truth, install=install, seconds=seconds) for item in chosen]
        found += [not_run(name, reason) for name, reason in ABSENT.items() if not reader]
        _show(settings, truth, found, docs)
    except PrismError as error:
        complain(str(error))
        raise typer.Exit(2) from None
    if not all(item.is_sound for item in found):
        raise typer.Exit(1)


def _chosen(names: list[str] | None) -> list[Reader]:
    by_name = {item.name.lower(): item for item in READERS}
    unknown = [name for name in names or () if name.lower() not in by_name]
    if unknown:
        raise WrongUse(f"{', '.join(unknown)}: no such reader; known are {', '.join(item.name for item in READERS)}")
    return [by_name[name.lower()] for name in names] if names else list(READERS)


def _examined(reader: Reader, truth: Truth, *, install: bool, seconds: float) -> Judged:
    home = local_home()
    python = environments.find_python(reader, home)
    if python is None and install:
        _out.print(f"[dim]installing {', '.join(reader.packages)}[/dim]")
        try:
            environments.install(reader, home)
        except WrongUse as error:
            return not_run(reader.name, str(error))
        python = environments.find_python(reader, home)
    if python is None:
        return not_run(reader.name, f"not installed: `scripts/readers --install` installs {', '.join(reader.packages)}")
    if reader.why_not is not None and (reason := reader.why_not()):
        return not_run(reader.name, reason)
    _out.print(f"[dim]asking {reader.name}[/dim]")
    replies = ask(reader, python, truth.tables, seconds=seconds, secrets=secret_values())
    return judged(reader.name, truth.right, replies)


def _show(settings: Settings, truth: Truth, found: list[Judged], docs: Path | None) -> None:
    if not is_unchanged(settings, truth.tables):
        raise WrongUse("a table was published meanwhile: stop its writers, and run this again")
    _out.print(sheet.terminal_table(found))
    for line in sheet.reasons(found):
        _out.print(line, markup=False, soft_wrap=True)
    if docs is not None:
        counted = sum(int(rows[0][0] or 0) for (_, item), rows in truth.right.items() if item is Question.ALL_ROWS)
        table = sheet.markdown(found, datetime.now(timezone.utc).date(), counted)
        for page, changed in (
            ("readers.md", lambda text: sheet.with_part(text, sheet.RESULTS, table)),
            ("reader-lines.md", sheet.with_lines),
        ):
            path = docs / page
            path.write_text(changed(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
