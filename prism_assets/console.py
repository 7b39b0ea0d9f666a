"""Renders reports on a terminal, and as JSON."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, NoReturn

from rich import markup
from rich.console import Console
from rich.table import Table

from prism_assets.domain.columns.column import Column
from prism_assets.domain.days.publishers import GLUE_PUBLISHERS, words_of
from prism_assets.domain.errors import PrismError, WrongUse
from prism_assets.domain.text import counted
from prism_assets.json_logs import is_json, json_line

if TYPE_CHECKING:
    from prism_assets.domain.findings import Finding
    from prism_assets.domain.tables.definition import TableDefinition
    from prism_assets.reading.lake_reader import ReadTable
    from prism_assets.stages.apply.plan import ApplyPlan
    from prism_assets.stages.catalog.publish import PublishReport
    from prism_assets.stages.catalog.report import CatalogReport, TableReport
    from prism_assets.stages.doctor.report import DoctorReport
    from prism_assets.stages.drop.report import DropReport
    from prism_assets.stages.erase.report import ErasureReport
    from prism_assets.stages.gc.report import GcReport
    from prism_assets.stages.repair.report import RepairReport
    from prism_assets.stages.run import CycleReport
    from prism_assets.stages.stream.report import StreamReport

_SILENT_SECONDS = 30
# Rich would print `:x:` in a value or a key as a picture.
out = Console(soft_wrap=True, highlight=False, emoji=False)
err = Console(stderr=True, soft_wrap=True, highlight=False, emoji=False)


def escape(message: str) -> str:
    """Returns text without effect on the terminal: markup and invisible characters, perhaps from object names, are
    escaped.
    """
    return markup.escape("".join(char if char.isprintable() or char == "\n" else f"{char!a}"[1:-1] for char in message))


def progress(as_json: bool) -> Callable[[str], None]:
    """Returns a function that prints progress lines to standard error, or prints nothing if no person watches."""
    if as_json or not sys.stderr.isatty():
        return lambda _message: None
    return lambda message: err.print(f"[dim]{escape(message)}[/dim]")


def complain(message: str) -> None:
    """Prints an error in one or a few plain lines, or as one JSON object."""
    if is_json():
        sys.stderr.write(json_line("error", message) + "\n")
        return
    err.print(f"[red]prism:[/red] {escape(message)}")


def run_commands(commands: Callable[..., object], name: str) -> NoReturn:
    """Runs a command line under a name, and ends the process.

    An error is one sentence on standard error and an exit status, never a traceback.
    """
    try:
        commands(prog_name=name)
    except WrongUse as error:
        complain(str(error))
        sys.exit(2)
    except PrismError as error:
        complain(str(error))
        sys.exit(1)
    except BrokenPipeError:
        sys.stderr.close()  # whoever read the output has enough of it
        sys.exit(1)
    except OSError as error:
        complain(f"{error.filename or 'the system'}: {error.strerror or error}")
        sys.exit(1)
    sys.exit(0)


def show_later(findings: Sequence[Finding]) -> None:
    """Prints findings that end without the user."""
    for finding in findings:
        out.print(escape(f"later, by itself: {finding}"))


def size(count: int) -> str:
    """Formats bytes for people."""
    value = float(count)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"


def print_json(value: Any) -> None:
    """Prints one JSON document with dataclasses as objects. NaN and infinities become null, because JSON cannot express
    them.
    """
    try:
        written = json.dumps(value, default=encode, indent=2, allow_nan=False)
    except ValueError:
        finite = json.loads(json.dumps(value, default=encode), parse_constant=lambda _name: None)
        written = json.dumps(finite, indent=2)
    sys.stdout.write(written + "\n")


def encode(value: Any) -> Any:
    """The `default` of `json.dumps`: converts values that `json` does not know."""
    if isinstance(value, Column):
        return value.to_document()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return {name: encode(item) if isinstance(item, Mapping) else item for name, item in fields.items()}
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {str(key): item for key, item in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(value)
    return str(value)


def show_report(report: Any, sentence: str, *, as_json: bool) -> None:
    """Prints a stage's report, in full as JSON or in one sentence."""
    if as_json:
        print_json(report)
    else:
        out.print(escape(sentence))


def show_lines(items: Sequence[Any], lines: Sequence[str], *, as_json: bool) -> None:
    """Prints plans, in full as JSON or one line each."""
    if as_json:
        print_json(items)
    else:
        for line in lines or ["nothing to do"]:
            out.print(escape(line))


def show_apply(plan: ApplyPlan, *, dry_run: bool, as_json: bool) -> None:
    """Prints the changes that `table apply` made or would make."""
    if as_json:
        tables = [
            {
                "table": str(table.name),
                "changes": [{"change": type(item).__name__, **vars(item)} for item in table.changes],
            }
            for table in plan.tables
        ]
        print_json(
            {
                "lines": plan.lines,
                "lake": plan.lake,
                "problems": plan.problems,
                "notices": plan.notices,
                "reload": plan.reload,
                "looks": plan.looks,
                "tables": tables,
            }
        )
        return
    for line in plan.lines:
        out.print(("would " if dry_run else "") + escape(line))
    reload = [plan.reload] if plan.reload and not dry_run else []
    for notice in (*plan.notices, *plan.looks, *reload):
        out.print(escape(notice))
    if not plan.lines and not plan.notices:
        out.print("tables and streams are as the files say; nothing to do")


def show_tables(tables: Sequence[TableDefinition], *, as_json: bool) -> None:
    """Prints a line for each table."""
    if as_json:
        print_json([json.loads(table.to_json()) for table in tables])
        return
    grid = Table("table", "columns", "streams", "time zone", "owner")
    for table in tables:
        streams = ", ".join(stream.url for stream in table.streams)
        owner = escape(table.owner or "")
        grid.add_row(str(table.name), str(len(table.columns)), escape(streams), table.timezone, owner)
    out.print(grid)


def show_table(table: TableDefinition, *, as_json: bool) -> None:
    """Prints one table."""
    if as_json:
        print_json(json.loads(table.to_json()))
        return
    grid = Table("id", "column", "type", "from", "required", title=str(table.name))
    for column in table.columns:
        kind = column.glue_type
        origin = escape(column.source if column.value is None else column.value)
        grid.add_row(str(column.column_id), column.name, kind, origin, "yes" if column.required else "")
    out.print(grid)
    for column in table.unstored:
        out.print(f"not stored: {column.name} from {escape(column.value or column.source)}")
    if table.keep is not None:
        out.print(f"rows are kept where {escape(table.keep)}")
    for rejection in table.reject:
        out.print(f"lines are quarantined as {rejection.reason} where {escape(rejection.when)}")
    for stream in table.streams:
        state = " (discarded)" if stream.discard else ""
        out.print(escape(f"stream {stream.name}: {stream.url}{state if stream.enabled else ' (stopped)'}"))
        if stream.topic is not None:
            out.print(escape(f"    {stream.topic.describe()}"))
        for item in stream.columns:
            out.print(escape(f"    {item.name} from {item.source if item.value is None else item.value}"))


def show_catalog(report: CatalogReport, *, as_json: bool) -> None:
    """Prints the steps of a catalog run by table."""
    if as_json:
        print_json(report)
        return
    for table in report.tables:
        for verb, days in (
            ("expired", table.expired),
            ("switched", table.switched),
            ("marked", table.marked),
            ("closed", table.closed),
        ):
            for day in days:
                out.print(f"{table.table} {day}: {verb}")
        for line in (*table.columns_advanced, *(f"{table.table}: {item}" for item in table.open_transitions)):
            out.print(escape(line))
        reports: tuple[TableReport | PublishReport, ...] = (table, table.symlink)
        for publisher, shown in zip(GLUE_PUBLISHERS, reports, strict=True):
            words = words_of(publisher)
            for day in shown.withdrawn:
                out.print(f"{table.table} {day}: taken out of {words.catalog}")
            if shown.defined:
                out.print(f"{table.table}: {shown.defined} in {words.catalog}")
            for name in shown.removed:
                out.print(f"{table.table}: {name} is no longer shown {words.shown}")
            for item in shown.published:
                out.print(f"{table.table} {item.date}: published {item.location}")
        for waiting in table.waiting:
            out.print(f"{table.table} {waiting.date}: {escape(waiting.reason)}")
        if table.skipped:
            out.print(escape(f"{table.table}: {table.skip_reason}"))
    if not report.changed and not any(
        t.problems or t.skipped or t.waiting or t.open_transitions for t in report.tables
    ):
        out.print("the catalog is as it should be; nothing to do")


def show_repair(report: RepairReport, *, as_json: bool) -> None:
    """Prints the findings of a repair by partition, and the sum."""
    if as_json:
        print_json(report)
        return
    for item in report.partitions:
        if item.skipped:
            out.print(escape(f"{item.table} {item.date}: {item.skip_reason}"))
        else:
            out.print(
                f"{item.table} {item.date}: {item.missing} missing, {item.damaged} damaged, {item.repaired} repaired"
                + (", shown by the next catalog run" if item.rewritten else "")
                + (f", {item.strays} left over by ended attempts" if item.strays else "")
            )
    out.print(
        f"{counted(report.checked, 'small object')} checked: {report.missing} missing, {report.damaged} damaged, "
        f"{report.repaired} repaired" + (f"; {report.strays} left over" if report.strays else "")
    )


def show_gc(report: GcReport, drops: DropReport, *, as_json: bool) -> None:
    """Prints deleted objects by table, or those a dry run would delete, the sum, and the progress of drops."""
    if as_json:
        print_json({**vars(report), "drops": drops})
        return
    for sentence in (*report.sentences, *drops.sentences):
        out.print(escape(sentence))
    out.print(f"{report.deleted + drops.deleted} {'to delete' if report.dry_run else 'deleted'}")


def show_erasures(report: ErasureReport, *, as_json: bool) -> None:
    """Prints the progress of erasures, and tables held by other calls."""
    if as_json:
        print_json(report)
        return
    for status in report.erasures:
        out.print(escape(str(status)))
    for table, holder in report.holders.items():
        out.print(escape(f"{table}: another call is at its erasures{f' ({holder})' if holder else ''}"))
    if not report.erasures and not report.holders:
        out.print("no erasure waits for anything")


def show_doctor(
    report: DoctorReport, *, without_kernel: str, executors_without_kernel: Mapping[str, str], as_json: bool
) -> None:
    """Prints a line for each finding, and the numbers of examined tables, partitions and objects.

    `without_kernel` is the reason why this process has no compiled kernel, or empty. `executors_without_kernel` has
    the reason of each host.
    """
    if as_json:
        missing = {
            "without_kernel": without_kernel or None,
            "executors_without_kernel": dict(executors_without_kernel),
        }
        print_json({"clean": report.is_clean, **missing, **vars(report)})
        return
    for finding in report.findings:
        out.print(escape(f"{finding.invariant or 'I10'} {finding}"))
    for problem in report.unseen:
        out.print(escape(f"not looked at: {problem}"))
    for note in report.notes:
        out.print(escape(f"note: {note}"))
    if report.published_design:
        out.print("these are tables of the published design: only PostgreSQL was looked at, not the objects")
    seen = (
        f"{counted(report.tables, 'table')}, {counted(report.partitions, 'partition')} in the catalog, "
        f"{counted(report.objects, 'object')}"
    )
    if without_kernel:
        out.print(escape(f"lines are read without the compiled kernel, which takes longer: {without_kernel}"))
    for host, why_not in executors_without_kernel.items():
        out.print(escape(f"the executor on {host} reads lines without the compiled kernel: {why_not}"))
    what = "nothing is wrong" if report.is_clean else counted(len(report.findings), "finding")
    out.print(f"{what}: {seen} looked at in {report.seconds:.1f} s")


def unfit_values(*reports: StreamReport) -> str:
    """Returns a clause on values that are null or cut, to follow the counts of rows. Empty if all values fitted."""
    count = sum(report.unfit_values for report in reports)
    if not count:
        return ""
    return (
        f"; {counted(count, 'value')} did not fit, null or cut now: `prism status --table TABLE` says of which columns"
    )


def show_turns(turns: Sequence[CycleReport], *, as_json: bool) -> None:
    """Prints the sums over all turns of a run."""
    if as_json:
        print_json(turns)
        return
    rows = sum(turn.stream.rows_out for turn in turns)
    quarantined = sum(turn.stream.quarantined for turn in turns)
    filtered = sum(turn.stream.filtered for turn in turns)
    elsewhere = sum(turn.stream.elsewhere for turn in turns)
    lines = (
        counted(quarantined, "quarantined line")
        + (f", {filtered} filtered ones" if filtered else "")
        + (f", {elsewhere} of other tables" if elsewhere else "")
    )
    folds = [fold for turn in turns for fold in turn.fold.folds]
    folded = (
        f"{counted(len(folds), 'fold')} of {counted(sum(fold.counts.changes_in for fold in folds), 'change')}; "
        if folds
        else ""
    )
    merges = [entry for turn in turns for entry in turn.merge.merged if entry.sizes]
    out.print(
        f"{counted(sum(turn.discover.new for turn in turns), 'new object')}; {counted(rows, 'row')} and {lines}; "
        f"{counted(len(merges), 'merge')} of {counted(sum(entry.rows for entry in merges), 'row')}; "
        f"{folded}{counted(sum(len(t.published) for turn in turns for t in turn.catalog.tables), 'publication')}"
        + unfit_values(*(turn.stream for turn in turns))
    )


def silent_for(seconds: float) -> str:
    """Returns how long a worker has been silent, where that is long: a live one shows itself every few seconds."""
    return f", silent for {seconds:.0f} s" if seconds >= _SILENT_SECONDS else ""


def show_files(table: ReadTable, *, as_json: bool) -> None:
    """Prints a reader's view of a table."""
    if as_json:
        print_json(table)
        return
    for partition in table.partitions:
        out.print(
            f"{partition.date} {partition.location} {counted(len(partition.objects), 'object')}, "
            f"{size(partition.content_length)}"
        )
        for item in partition.objects:
            out.print(f"  {item.content_length:>12,} {item.url}")
    if not table.partitions:
        out.print(f"the catalog has no partition of {table.name} to show")
