"""`prism table`: table files, from a sample of logs to a table in force."""

from __future__ import annotations

import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated

import typer

from prism_assets import console
from prism_assets.cli.options import Force, Json, Now, fail_if, open_context, read_clock, running_clock
from prism_assets.cli.table_names import takes_table
from prism_assets.cli.table_reports import show_cases, show_draft, show_drift, show_patch, show_recipe, show_trial
from prism_assets.domain.errors import WrongUse
from prism_assets.domain.tables.file_schema import table_file_schema
from prism_assets.settings import LocationSettings, load, load_reader_settings

table_app = typer.Typer(help="Drafts, tries, applies and drops tables.", no_args_is_help=True)


@table_app.command("init")
@takes_table
def table_init(
    name: Annotated[str, typer.Argument(help="schema.table of the new table.")],
    sample: Annotated[
        str | None, typer.Option("--sample", help="A file, a folder, or s3://bucket/prefix/ with logs.")
    ] = None,
    recipe: Annotated[
        str | None, typer.Option("--recipe", help="Logs of a known kind, such as cloudtrail, instead of a sample.")
    ] = None,
    url: Annotated[
        str | None,
        typer.Option("--url", help="The prefix where objects will arrive; by default that of a sample in S3."),
    ] = None,
    tables: Annotated[
        Path | None, typer.Option("--tables", help="Folder of table files; PRISM_TABLES_DIR by default.")
    ] = None,
    show: Annotated[bool, typer.Option("--print", help="Print the draft and write no file.")] = False,
    as_json: Json = False,
) -> None:
    """Drafts a table file from a sample of logs: one column for each key, with a type that loses nothing.

    With --recipe it writes a tested file for logs of a known kind.
    """
    from prism_assets.drafting.draft import draft_file, recipe_file

    if show and tables:
        raise WrongUse("--print writes no file: leave --tables out")
    folder = None if show else tables or load(LocationSettings).tables_dir
    if recipe is not None and sample is None:
        show_recipe(recipe_file(name, recipe, url=url, folder=folder), as_json=as_json)
        return
    if sample is None or recipe is not None:
        raise WrongUse("give one of --sample, to draft from logs, and --recipe, for logs of a known kind")
    now = datetime.now(timezone.utc)
    draft = draft_file(load_reader_settings().store, name, sample, url=url, folder=folder, now=now)
    show_draft(draft, as_json=as_json)


@table_app.command("try")
def table_try(
    file: Annotated[Path, typer.Argument(help="The table file.")],
    sample: Annotated[str, typer.Option("--sample", help="A file, a folder, or s3://bucket/prefix/ with JSON lines.")],
    against: Annotated[
        int | None, typer.Option("--against", help="Show the differences from this stored version of the table, too.")
    ] = None,
    stream: Annotated[
        str | None,
        typer.Option("--stream", help="The stream of a sample on this machine; the first one by default."),
    ] = None,
    lines: Annotated[int, typer.Option("--lines", min=1, max=1_000_000, help="How many lines to read.")] = 10_000,
    rows: Annotated[int, typer.Option("--rows", min=0, max=1_000, help="How many rows to show.")] = 5,
    cases: Annotated[
        int | None,
        typer.Option("--cases", min=0, help="Print cases for `prism table test` instead, with this many rows."),
    ] = None,
    now: Now = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Converts the first lines of a sample under a table file, shows the rows, and writes nothing."""
    from prism_assets.drafting.proposals import propose_cases
    from prism_assets.drafting.trial import read_table, try_table

    clock, table, store = read_clock(now, force), read_table(file, stream), load_reader_settings().store
    if cases is not None:
        for line in propose_cases(store, table, sample, now=clock, most=cases):
            sys.stdout.write(f"{line}\n")
        return
    before = None if against is None else open_context(True).choose_version(str(table.name), against)
    trial = try_table(store, table, sample, now=clock, against=before, lines=lines, rows=rows)
    show_trial(trial, as_json=as_json)
    fail_if([trial.problem] if trial.problem else [])


@table_app.command("test")
def table_test(
    files: Annotated[
        list[Path] | None, typer.Argument(help="Table files or case files; all of PRISM_TABLES_DIR by default.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Runs the cases of `T.test.jsonl` beside each table file `T.yaml`, and reports every difference."""
    from prism_assets.drafting.cases import find_files, run_cases

    reports = [run_cases(path) for path in find_files(files or (), load(LocationSettings).tables_dir)]
    show_cases(reports, as_json=as_json)
    fail_if([failure for report in reports for failure in report.failures])


@table_app.command("apply")
def table_apply(
    folder: Annotated[Path | None, typer.Argument(help="Folder of table files; PRISM_TABLES_DIR by default.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and change nothing.")] = False,
    restore_marker: Annotated[
        bool, typer.Option("--restore-marker", help="Write a deleted marker of the lake again.")
    ] = False,
    accept_amplification: Annotated[
        bool,
        typer.Option(
            "--accept-amplification",
            help="Change join tables whose folds write over 50 rows for each change, too.",
        ),
    ] = False,
    accept_failing_reads: Annotated[
        bool,
        typer.Option(
            "--accept-failing-reads",
            help="Widen columns now; Redshift Spectrum fails on older days until they are rewritten.",
        ),
    ] = False,
    now: Now = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Makes PostgreSQL agree with the table files: creates and changes tables and streams.

    The first call also joins the database and the lake.
    """
    from prism_assets.stages.apply.run import run_apply

    context = open_context(as_json)
    plan = run_apply(
        context,
        folder or context.settings.tables_dir,
        read_clock(now, force),
        dry_run=dry_run,
        restore_marker=restore_marker,
        accept_amplification=accept_amplification,
        accept_failing_reads=accept_failing_reads,
    )
    console.show_apply(plan, dry_run=dry_run, as_json=as_json)


@table_app.command("list")
def table_list(as_json: Json = False) -> None:
    """Lists the tables in force."""
    console.show_tables(open_context(as_json).choose_tables(None), as_json=as_json)


@table_app.command("show")
@takes_table
def table_show(
    name: Annotated[str, typer.Argument(help="schema.table, such as log.events.")], as_json: Json = False
) -> None:
    """Shows the columns, conditions and streams of one table."""
    console.show_table(open_context(as_json).choose_tables([name])[0], as_json=as_json)


@table_app.command("drift")
@takes_table
def table_drift(
    name: Annotated[str, typer.Argument(help="schema.table, such as log.events.")],
    patch: Annotated[
        bool, typer.Option("--patch", help="Print columns for these fields, to be added to the file.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Lists fields of lines that no column reads: key, kind, count, and an example."""
    from prism_assets.stages.drift import read_drift

    context = open_context(as_json)
    drift = read_drift(context, name)
    if not patch:
        show_drift(drift, as_json=as_json)
        return
    from prism_assets.drafting.patch import column_lines, draft_fields, draft_patch, evolved_fields, field_lines

    store = context.settings.store
    columns = column_lines(drift.table, draft_patch(store, drift.table, drift.fields))
    fields = [*evolved_fields(drift.table), *draft_fields(store, drift.table, drift.fields)]
    show_patch(columns, field_lines(fields), as_json=as_json)


@table_app.command("schema")
def table_schema() -> None:
    """Prints the JSON Schema of table files, for editors: `prism table schema > tables/table-file.schema.json`."""
    console.print_json(table_file_schema())


@table_app.command("flip")
@takes_table
def table_flip(
    name: Annotated[str, typer.Argument(help="schema.table of a table with a column that is being widened.")],
    now: Now = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Flips columns to their wider types now; new objects wait until all older ones are merged and copied."""
    from prism_assets.stages.flip import run_flip

    report = run_flip(open_context(as_json), name, clock=running_clock(now, force))
    console.show_report(report, "\n".join(report.sentences), as_json=as_json)
    fail_if(report.errors)


@table_app.command("drop")
@takes_table
def table_drop(
    name: Annotated[str, typer.Argument(help="schema.table of a table that was retired at least 30 days ago.")],
    confirm: Annotated[str | None, typer.Option("--confirm", help="The name, typed again.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the objects and rows that would go, and change nothing.")
    ] = False,
    now: Annotated[
        str | None, typer.Option("--now", help="The clock for leases, such as 2026-11-21T00:10:00Z.")
    ] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Drops a retired table for good: from catalogs, from the lake, and from PostgreSQL."""
    from prism_assets.stages.drop.run import plan_drop, run_drop

    clock, context = None if now is None else read_clock(now, force), open_context(as_json)
    if dry_run:
        plans = plan_drop(context, name, clock)
        console.show_lines(plans, [line for plan in plans for line in plan.sentences], as_json=as_json)
        if obstacles := [obstacle for plan in plans for obstacle in plan.obstacles]:
            raise WrongUse("\n".join(obstacles))
        return
    report = run_drop(context, name, confirm=confirm, now=clock)
    console.show_report(report, "\n".join(report.sentences), as_json=as_json)
    fail_if(report.errors)
