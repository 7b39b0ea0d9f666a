"""`prism init`: the folder of a new lake."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from prism_assets import console
from prism_assets.cli.options import Json
from prism_assets.cli.table_reports import show_draft
from prism_assets.domain.errors import WrongUse
from prism_assets.settings import load_reader_settings

if TYPE_CHECKING:
    from prism_assets.drafting.draft import Draft
    from prism_assets.drafting.project import Scaffold


@dataclass(frozen=True, kw_only=True)
class _Report:
    project: Scaffold
    draft: Draft | None


def init(
    folder: Annotated[Path, typer.Argument(help="The folder of the project; this one by default.")] = Path("."),
    table: Annotated[str | None, typer.Option("--table", help="schema.table of a first table, with --sample.")] = None,
    sample: Annotated[
        str | None, typer.Option("--sample", help="A file, a folder, or s3://bucket/prefix/ with logs of --table.")
    ] = None,
    url: Annotated[
        str | None,
        typer.Option("--url", help="The prefix where its objects will arrive; by default that of a sample in S3."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Scaffolds a project: tables/, prism.toml, dagster.yaml, workspace.yaml, .gitignore, and a first table.

    Existing files stay as they are.
    """
    from prism_assets.drafting.draft import draft_file
    from prism_assets.drafting.project import TABLES, check_folder, scaffold

    if (table is None) is not (sample is None):
        raise WrongUse("give --table and --sample together, to draft a first table; nothing was written")
    if url is not None and sample is None:
        raise WrongUse("--url needs --table and --sample; nothing was written")
    check_folder(folder)
    draft = None
    if table is not None and sample is not None:
        store, now = load_reader_settings().store, datetime.now(timezone.utc)
        draft = draft_file(store, table, sample, url=url, folder=folder / TABLES, now=now)
    report = _Report(project=scaffold(folder), draft=draft)
    if as_json:
        console.print_json(report)
    else:
        _show(report)


def _show(report: _Report) -> None:
    project = report.project
    for verb, names in (("wrote", project.written), ("kept as they were:", project.kept)):
        if names:
            console.out.print(console.escape(f"{project.folder}: {verb} {', '.join(names)}"), soft_wrap=True)
    if report.draft:
        show_draft(report.draft, as_json=False)
    console.out.print("then:" if report.draft else "next:")
    for line in _next_commands(report):
        console.out.print(console.escape(f"  {line}"), soft_wrap=True, highlight=False)


def _next_commands(report: _Report) -> Iterator[str]:
    """Yields the commands from the new folder to a first row, and to Dagster."""
    if report.project.folder.resolve() != Path.cwd():
        yield f"cd {shlex.quote(str(report.project.folder))}"
    yield "prism local up           # one machine without a cloud account; on AWS, edit prism.toml instead"
    if report.draft is None:
        yield "prism table init log.signups --sample logs/ --url s3://prism-staging/signups/"
    yield "prism table apply"
    yield "prism run                # converts new objects, and publishes their days"
    yield "set -a; . .prism/env; set +a; DAGSTER_HOME=$PWD dagster dev"
