"""How reports on Iceberg tables look on a terminal, and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from prism_assets.console import escape, out, print_json
from prism_assets.domain.text import counted

if TYPE_CHECKING:
    from prism_assets.domain.iceberg.commit import IcebergCommit
    from prism_assets.stages.iceberg.report import IcebergReport
    from prism_assets.stages.iceberg.status import IcebergStatus


def show_iceberg(report: IcebergReport, *, as_json: bool) -> None:
    """Prints the result of publishing Iceberg tables."""
    if as_json:
        print_json(report)
        return
    for table in report.tables:
        for line in table.lines:
            out.print(escape(f"{table.table}: {line}"))
    if not report.tables:
        out.print("no table file says `iceberg:`; nothing to do")
    elif not report.changed and not report.errors:
        out.print("the Iceberg tables are as they should be; nothing to do")


def show_iceberg_status(tables: Sequence[IcebergStatus], *, as_json: bool) -> None:
    """Prints a few lines for each Iceberg table."""
    if as_json:
        print_json(tables)
        return
    for item in tables:
        known = item.known
        head = f"snapshot {known.snapshot_id}" if known and known.snapshot_id else "no snapshot"
        health = f", health {item.health.score}" if item.health else ""
        out.print(
            f"{item.table} [bold]{item.state}[/bold]: {head} of {item.identifier}, "
            f"{known.snapshots if known else 0} retained, {item.seconds_behind:.0f} s behind{health}"
        )
        if known and known.last_error:
            out.print(f"    {escape(known.last_error)}")
        for complaint in item.health.complaints if item.health else ():
            out.print(f"    {escape(complaint)}")
        if item.left_out:
            out.print(
                "    "
                f"{counted(len(item.left_out), 'day is not shown as it should', 'days are not shown as they should')}, "
                f"{item.left_out[-1]} among them"
            )
    if not tables:
        out.print("no table file says `iceberg:`")


def show_iceberg_history(commits: Sequence[IcebergCommit], *, as_json: bool) -> None:
    """Prints a line for each commit, the newest first."""
    if as_json:
        print_json(commits)
        return
    for item in commits:
        what = f"{item.outcome} {item.operation or 'metadata'} {item.snapshot_id or ''}".rstrip()
        out.print(
            f"{item.commit_time:%Y-%m-%d %H:%M:%S}Z [bold]{what}[/bold]: files +{item.files_in} -{item.files_out}, "
            f"rows +{item.rows_in:,} -{item.rows_out:,}, {item.seconds:.2f} s"
            + (
                f", {counted(item.foreign_snapshots, 'snapshot')} of others taken back"
                if item.foreign_snapshots
                else ""
            )
        )
        if item.message:
            out.print(f"    {escape(item.message)}")
    if not commits:
        out.print("nothing was committed yet")
