"""How `prism status` looks on a terminal, and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from prism_assets.console import escape, out, print_json, silent_for, size
from prism_assets.domain.text import counted, span

if TYPE_CHECKING:
    from prism_assets.metadata.kafka.lag import TopicLag
    from prism_assets.stages.status import PartitionStatus, TableStatus

_TABLES_NAMED = 10


def show_status(tables: Sequence[TableStatus], *, as_json: bool) -> None:
    """Prints a line for each partition, and a legend below all of them."""
    if as_json:
        print_json(tables)
        return
    for table in tables:
        _show_table_status(table)
    _show_workers(tables)
    if any(table.partitions for table in tables):
        out.print(f"[dim]{_STATES}[/dim]")


_STATES = (
    "States of a day: new (in no catalog yet), live (readers list its folder), closing (its last live objects are "
    "converted), closed (readers get a list of small objects), switched (readers get merged objects), expired (readers "
    "get none). Unmerged objects are in no merged object yet."
)


def _show_workers(tables: Sequence[TableStatus]) -> None:
    """Prints a line for each live worker."""
    held: dict[str, list[TableStatus]] = {}
    for table in tables:
        if table.live_worker:
            held.setdefault(table.live_worker.worker, []).append(table)
    for worker, of_worker in sorted(held.items()):
        names = [table.table for table in of_worker[:_TABLES_NAMED]]
        more = ", …" if len(of_worker) > len(names) else ""
        beats = [table.live_worker for table in of_worker if table.live_worker]
        silence = silent_for(min(holder.silent_seconds for holder in beats))
        tables_of_it = f"{counted(len(of_worker), 'table')}, {', '.join(names)}{more}"
        out.print(escape(f"live worker {worker}{silence}: {tables_of_it}"))


def _show_table_status(table: TableStatus) -> None:
    for item in table.partitions:
        out.print(_status_line(item))
        for finding in item.findings:
            out.print(f"    {escape(finding.text)}")
    findings = table.findings
    if table.pending or table.claimed:
        out.print(f"{table.table}: {counted(table.pending, 'staging object')} pending, {table.claimed} being converted")
    elif not table.partitions:
        # The first catalog run defines every new table: this is no news before the first object.
        findings = tuple(finding for finding in findings if finding.kind != "define")
        if not findings:
            out.print(f"{table.table}: nothing arrived yet")
    for topic in table.topics:
        out.print(escape(f"{table.table}: {_topic_line(topic)}"))
    for finding in findings:
        out.print(escape(str(finding)))
    if table.unfit_values:
        out.print(f"{table.table}: values of the last {table.unfit_days} days that did not fit (null, or cut)")
        for values in table.unfit_values:
            out.print(f"    {escape(values.column)}: {values.count:,} {escape(values.reason)}")
    if holder := table.catalog_holder:
        out.print(escape(f"{table.table}: is being published by {holder}{silent_for(holder.silent_seconds)}"))


def _topic_line(topic: TopicLag) -> str:
    if topic.topic_pk is None:
        return f"{topic.url}: no worker has begun to read it"
    stopped = sum(item.is_stopped for item in topic.partitions)
    workers = sorted({item.worker for item in topic.partitions if item.worker})
    behind = f", {span(round(topic.lag_seconds))}" if topic.lag_seconds else ""
    return (
        f"{topic.url}: {counted(len(topic.partitions), 'partition')}"
        + (f", {stopped} stopped" if stopped else "")
        + f", {counted(topic.lag_offsets, 'offset')} behind{behind}"
        + (f", read by {', '.join(workers)}" if workers else "")
    )


def _status_line(item: PartitionStatus) -> str:
    arrival = f", last arrival {item.last_arrival:%Y-%m-%d %H:%M:%S}Z" if item.last_arrival else ""
    erased = f" ({item.rows_erased:,} erased)" if item.rows_erased else ""
    return (
        f"{item.table} {item.date} [bold]{item.state}[/bold]: {counted(item.rows, 'row')}{erased}, "
        f"{counted(item.small_objects, 'small object')} "
        f"({item.unmerged_objects} unmerged), {item.merged_objects} merged, {size(item.bytes)}{arrival}"
    )
