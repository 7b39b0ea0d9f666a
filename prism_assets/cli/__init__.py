"""The `prism` command: the stages without Dagster. Exit status 0 done, 1 failed, 2 wrong use."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import cache
from importlib.metadata import entry_points, version
from typing import TYPE_CHECKING, Annotated

import typer

from prism_assets import console
from prism_assets.cli.adopt import adopt_app
from prism_assets.cli.ducklake import ducklake_app
from prism_assets.cli.erase import erase
from prism_assets.cli.exporter import exporter
from prism_assets.cli.history import history
from prism_assets.cli.iceberg import iceberg_app
from prism_assets.cli.init import init
from prism_assets.cli.installed import mount_installed
from prism_assets.cli.joins import join_app
from prism_assets.cli.kafka import kafka_app
from prism_assets.cli.options import (
    Day,
    Force,
    Json,
    Now,
    Tables,
    fail_if,
    open_context,
    read_clock,
    read_day,
    running_clock,
)
from prism_assets.cli.panels import DAILY, LEGEND, READERS, REPAIR, TABLES, InPanels
from prism_assets.cli.quarantine import quarantine_app
from prism_assets.cli.query import query
from prism_assets.cli.rebuild import rebuild
from prism_assets.cli.sql_engines import dbt_app
from prism_assets.cli.status_reports import show_status
from prism_assets.cli.table_names import takes_table, takes_tables
from prism_assets.cli.tables import table_app
from prism_assets.cli.worker import worker
from prism_assets.domain.errors import TerminalError
from prism_assets.domain.text import counted
from prism_assets.settings import load_reader_settings

if TYPE_CHECKING:
    from prism_assets.domain.findings import Finding
    from prism_assets.stages.context import StageContext
    from prism_assets.stages.findings.subject import Subject

app = typer.Typer(
    name="prism",
    cls=InPanels,
    epilog=LEGEND,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command(rich_help_panel=TABLES)(init)
app.add_typer(table_app, name="table", rich_help_panel=TABLES)
app.add_typer(adopt_app, name="adopt", rich_help_panel=TABLES)
app.add_typer(join_app, name="join", rich_help_panel=TABLES)
app.add_typer(quarantine_app, name="quarantine", rich_help_panel=REPAIR)
app.add_typer(kafka_app, name="kafka", rich_help_panel=REPAIR)
app.add_typer(iceberg_app, name="iceberg", rich_help_panel=READERS)
app.add_typer(ducklake_app, name="ducklake", rich_help_panel=READERS)
app.add_typer(dbt_app, name="dbt", rich_help_panel=READERS)

_COMMANDS = "prism_assets.commands"


def _print_version(is_asked: bool) -> None:
    if is_asked:
        console.out.print(f"prism {version('prism-assets')}")
        raise typer.Exit


@app.callback()
def prism(
    _version: Annotated[
        bool, typer.Option("--version", help="Print the version and end.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """Prism keeps a log lake on S3: JSON objects become small, then merged Parquet objects, and readers see each row
    once at every moment.
    """


@app.command(rich_help_panel=DAILY)
@takes_tables
def discover(table: Tables = None, now: Now = None, force: Force = False, as_json: Json = False) -> None:
    """Registers new staging objects.

    Messages of the queues are received unless --table is given; then every stream is listed.
    """
    from prism_assets.stages.discover.listings import run_discover

    report = run_discover(open_context(as_json), now=read_clock(now, force), names=table)
    received = report.received
    odd = sum(scan.unknown for scan in report.scans) + (received.unknown if received else 0)
    where = " (see prism_unknown_staging_objects)" if odd else ""
    rests = "; more messages wait until fewer objects are pending" if received and received.rests else ""
    console.show_report(report, report.describe() + where + rests, as_json=as_json)
    fail_if(report.errors)


@app.command(rich_help_panel=DAILY)
@takes_tables
def stream(
    table: Tables = None,
    again: Annotated[bool, typer.Option("--retry-failed", help="Convert given-up objects, too.")] = False,
    retry: Annotated[
        list[str] | None, typer.Option("--retry", help="Convert this object now: s3://bucket/key. May be repeated.")
    ] = None,
    give_up: Annotated[
        list[str] | None,
        typer.Option("--give-up", help="Give this object up for good: s3://bucket/key. May be repeated."),
    ] = None,
    now: Now = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Converts pending staging objects to small objects.

    Rows of open days are readable at once, rows of closed days after the next `prism catalog`.
    """
    from prism_assets.stages.findings.objects import UNREAD, WAITING
    from prism_assets.stages.findings.set_aside import set_aside_by
    from prism_assets.stages.stream.run import run_stream
    from prism_assets.stages.stream.unread import give_up_object, retry_failed, retry_object

    context, clock = open_context(as_json), read_clock(now, force)
    if again:
        retry_failed(context, table)
    for key in retry or ():
        retry_object(context, key, table)
    for key in give_up or ():
        give_up_object(context, key, table)
    report = run_stream(context, now=clock, names=table)
    console.show_report(
        report,
        f"{counted(report.objects, 'object')}, {counted(report.lines_in, 'line')}: {counted(report.rows_out, 'row')}, "
        f"{report.quarantined} quarantined"
        + (f", {report.filtered} filtered" if report.filtered else "")
        + (f", {report.elsewhere} of other tables" if report.elsewhere else "")
        + (f", {report.retried} to be tried again" if report.retried else "")
        + (f"; {counted(report.discarded, 'object')} discarded" if report.discarded else "")
        + console.unfit_values(report),
        as_json=as_json,
    )
    aside = set_aside_by(context, report)
    _report_findings(context, table, UNREAD, WAITING, now=clock, errors=report.errors, aside=aside, as_json=as_json)


@app.command(rich_help_panel=DAILY)
@takes_tables
def fold(
    table: Tables = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the due folds and change nothing.")] = False,
    now: Now = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Folds new changes of join tables into their records.

    The next `prism catalog` shows the records to readers of Glue.
    """
    from prism_assets.stages.fold.preview import preview
    from prism_assets.stages.fold.run import run_fold
    from prism_assets.stages.leases import takeover_seconds

    context, clock = open_context(as_json), read_clock(now, force)
    if dry_run:
        plans = preview(context, now=clock, names=table)
        console.show_lines(plans, [str(plan) for plan in plans], as_json=as_json)
        return
    report = run_fold(context, now=clock, names=table, ignore_pace=True, wait_seconds=takeover_seconds(context))
    changes = sum(done.counts.changes_folded for done in report.folds)
    rows = sum(done.counts.rows_written for done in report.folds)
    console.show_report(
        report,
        f"{counted(len(report.folds), 'fold')}: {counted(changes, 'change')}, {counted(rows, 'row')} written",
        as_json=as_json,
    )
    fail_if(report.errors)


@app.command(rich_help_panel=DAILY)
@takes_tables
def merge(
    table: Tables = None,
    day: Day = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Run jobs before their time, too, and parked ones.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plans and change nothing.")] = False,
    now: Now = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Runs due merges: small objects of logs, and settled records of join tables, become merged objects."""
    from prism_assets.stages.findings.merges import MERGES
    from prism_assets.stages.leases import takeover_seconds
    from prism_assets.stages.merge.plan import preview
    from prism_assets.stages.merge.record_merge_plan import preview_record_merges
    from prism_assets.stages.merge.run import run_merge

    context, clock = open_context(as_json), read_clock(now, force)
    if dry_run:
        logs = preview(context, now=clock, names=table, day=read_day(day), ignore_schedule=everything)
        records = preview_record_merges(context, table, read_day(day))
        lines = [*(plan.describe() for plan in logs), *(plan.describe() for plan in records)]
        console.show_lines([*logs, *records], lines, as_json=as_json)
        return
    report = run_merge(
        context,
        now=clock,
        names=table,
        day=read_day(day),
        ignore_schedule=everything,
        wait_seconds=takeover_seconds(context),
    )
    objects = sum(entry.objects_in for entry in report.merged)
    written = sum(len(entry.sizes) for entry in report.merged)
    console.show_report(
        report,
        f"{counted(report.jobs, 'job')}: {counted(objects, 'small object')} into {written}, "
        f"{counted(report.rows, 'row')}",
        as_json=as_json,
    )
    _report_findings(context, table, MERGES, now=clock, errors=report.errors, as_json=as_json)


@app.command(rich_help_panel=DAILY)
@takes_tables
def catalog(
    table: Tables = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the steps and change nothing.")] = False,
    republish: Annotated[
        bool,
        typer.Option("--republish", help="Publish every table and day again; close nothing."),
    ] = False,
    now: Now = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Closes days, switches readers to merged objects, and publishes every change to the catalogs.

    A table that another run holds is waited for; the lease of a dead run ends by itself.
    """
    from prism_assets.stages.catalog.preview import preview
    from prism_assets.stages.catalog.run import run_catalog
    from prism_assets.stages.findings.days import DAYS
    from prism_assets.stages.leases import takeover_seconds

    context, clock = open_context(as_json), read_clock(now, force)
    if dry_run:
        steps = preview(context, now=clock, names=table, republish=republish)
        console.show_lines(steps, [str(step) for step in steps], as_json=as_json)
        return
    report = run_catalog(context, now=clock, names=table, republish=republish, wait_seconds=takeover_seconds(context))
    console.show_catalog(report, as_json=as_json)
    _report_findings(context, table, DAYS, now=clock, errors=report.errors, as_json=as_json)


@app.command(rich_help_panel=REPAIR)
@takes_tables
def repair(
    table: Tables = None,
    day: Day = None,
    deep: Annotated[bool, typer.Option("--deep", help="Read every object; without it they are listed.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the damage and change nothing.")] = False,
    as_json: Json = False,
) -> None:
    """Makes missing and damaged small objects again from their staging objects."""
    from prism_assets.stages.repair.run import run_repair

    report = run_repair(open_context(as_json), names=table, day=read_day(day), deep=deep, dry_run=dry_run)
    console.show_repair(report, as_json=as_json)
    fail_if(report.errors)


@app.command(rich_help_panel=REPAIR)
@takes_tables
def gc(
    table: Tables = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the unreferenced objects and change nothing.")
    ] = False,
    now: Now = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Deletes unreferenced objects: merged inputs, superseded versions, leftovers of failed runs, dropped tables."""
    from prism_assets.stages.drop.report import DropReport
    from prism_assets.stages.drop.run import continue_drops
    from prism_assets.stages.gc.run import run_gc

    clock, context = None if now is None else read_clock(now, force), open_context(as_json)
    report = run_gc(context, now=clock, names=table, dry_run=dry_run)
    drops = DropReport() if dry_run or table else continue_drops(context, now=clock)
    console.show_gc(report, drops, as_json=as_json)
    fail_if((*report.errors, *drops.errors))


@app.command(rich_help_panel=DAILY)
@takes_tables
def run(
    until_idle: Annotated[bool, typer.Option("--until-idle", help="Repeat until nothing is left to do.")] = False,
    table: Tables = None,
    patience: Annotated[
        float | None,
        typer.Option(min=0, help="End --until-idle after this many seconds without progress; 600 by default."),
    ] = None,
    now: Now = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Runs every due step once: discover, stream, fold, merge, catalog, Iceberg publication, erasures.

    The last lines name the work that is left for a person.
    """
    from prism_assets.stages.findings.registry import SUBJECTS
    from prism_assets.stages.findings.set_aside import set_aside_by
    from prism_assets.stages.run import PATIENCE_SECONDS, lasting_errors, run_once, run_until_idle
    from prism_assets.stages.stream.report import StreamReport

    context = open_context(as_json)
    clock = running_clock(now, force)
    turns = (
        run_until_idle(context, clock=clock, names=table, patience=PATIENCE_SECONDS if patience is None else patience)
        if until_idle
        else (run_once(context, now=clock(), names=table),)
    )
    console.show_turns(turns, as_json=as_json)
    errors = lasting_errors(context, turns, table)
    aside = set_aside_by(context, sum((turn.stream for turn in turns), StreamReport()))
    _report_findings(
        context, table, *SUBJECTS, now=clock(), errors=errors, aside=aside, as_json=as_json, idle=until_idle
    )


@app.command(rich_help_panel=DAILY)
@takes_tables
def status(table: Tables = None, day: Day = None, now: Now = None, force: Force = False, as_json: Json = False) -> None:
    """Shows the state of each day, the work that it waits for, and findings with their remedies."""
    from prism_assets.stages.status import read_status

    show_status(
        read_status(open_context(as_json), now=read_clock(now, force), names=table, day=read_day(day)), as_json=as_json
    )


@app.command(rich_help_panel=REPAIR)
@takes_tables
def doctor(
    table: Tables = None,
    deep: Annotated[bool, typer.Option("--deep", help="Read every manifest and every small object, too.")] = False,
    executors: Annotated[
        bool, typer.Option("--executors", help="Ask the executors of Spark for the compiled kernel, too, in one job.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Looks for lost, doubled, hidden and dangling rows, and for work that waits for a person. Changes nothing."""
    from prism_assets.engine.spark import SparkEngine
    from prism_assets.kernels.compiled import loaded_kernel
    from prism_assets.stages.doctor.run import run_doctor

    context = open_context(as_json)
    report = run_doctor(context, names=table, deep=deep)
    engine = context.engine
    elsewhere = engine.without_kernel() if executors and isinstance(engine, SparkEngine) else {}
    console.show_doctor(
        report, without_kernel=loaded_kernel().why_not, executors_without_kernel=elsewhere, as_json=as_json
    )
    if not report.is_clean:
        raise typer.Exit(1)


@app.command(rich_help_panel=READERS)
@takes_table
def files(
    table: Annotated[str, typer.Argument(help="schema.table, such as log.events.")],
    day: Day = None,
    as_json: Json = False,
) -> None:
    """Lists the objects that a reader of the catalog is sent to, with their lengths."""
    from prism_assets.reading.lake_reader import LakeReader

    console.show_files(LakeReader(load_reader_settings()).table(table, read_day(day)), as_json=as_json)


app.command(rich_help_panel=DAILY)(worker)
app.command(rich_help_panel=DAILY)(exporter)
app.command(rich_help_panel=READERS)(query)
app.command(rich_help_panel=TABLES)(history)
app.command(rich_help_panel=REPAIR)(rebuild)
app.command(rich_help_panel=REPAIR)(erase)


def _report_findings(
    context: StageContext,
    names: Sequence[str] | None,
    *subjects: Subject,
    now: datetime,
    errors: Sequence[str],
    aside: Sequence[Finding] = (),
    as_json: bool,
    idle: bool = False,
) -> None:
    """Prints what this run met, then the findings of some subjects; fails for its errors.

    A run fails also for `aside`, the tables most of whose lines it set aside: only a person makes rows of these lines.
    They are printed last. A run until all is idle fails also for what is left for a person, and for what a run should
    have ended: it gave up waiting.
    """
    from prism_assets.domain.findings import Acts
    from prism_assets.stages.findings.registry import read_findings

    found = [item for item in read_findings(context, names, subjects, now=now) if item.ends_runs]
    for_a_person = [f"left for a person: {item}" for item in found if item.acts is Acts.PERSON]
    stuck = [item for item in found if idle and item.acts is Acts.RUN]
    if not as_json:
        console.show_later([item for item in found if item.acts is not Acts.PERSON and item not in stuck])
    if errors or aside or stuck or (idle and for_a_person):
        told = [f"left for a person: {item}" for item in aside]
        raise TerminalError(
            "\n".join([*errors, *(f"no progress any more: {item}" for item in stuck), *for_a_person, *told])
        )
    if for_a_person:
        console.complain("\n".join(for_a_person))
    elif idle and not as_json:
        console.out.print("nothing is left for a person")


@cache
def command_line() -> typer.Typer:
    """Returns all commands, also of other packages. Repeated calls return the same object."""
    mount_installed(app, entry_points(group=_COMMANDS))
    return app


def main() -> None:
    """Runs `prism`."""
    console.run_commands(command_line(), "prism")
