"""Status: the figures of tables and partitions, and the findings of each."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from prism_assets.domain.days.partitions import Partition
from prism_assets.domain.findings import Finding
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.metadata import leases
from prism_assets.metadata.days import partitions
from prism_assets.metadata.days.partition_figures import PartitionFigures, partition_figures
from prism_assets.metadata.intake.quarantine import UnfitValues, unfit_values
from prism_assets.metadata.kafka.lag import TopicLag, load_lags
from prism_assets.metadata.leases import Holder, LeaseKind
from prism_assets.stages.context import StageContext
from prism_assets.stages.findings.registry import find_all
from prism_assets.stages.findings.subject import Look
from prism_assets.stages.findings.topics import topic_tables

_UNFIT_DAYS = 7


@dataclass(frozen=True, kw_only=True)
class PartitionStatus:
    """One partition. Rows and bytes are sums over the objects of readers."""

    table: str
    date: date
    state: str
    rows: int
    rows_erased: int
    """Erased rows of these objects, not among `rows`. Records of join tables are not counted."""
    small_objects: int
    merged_objects: int
    unmerged_objects: int
    bytes: int
    last_arrival: datetime | None
    findings: tuple[Finding, ...]


@dataclass(frozen=True, kw_only=True)
class TableStatus:
    """One table. A table during a drop has the finding of the drop alone."""

    table: str
    pending: int = 0
    claimed: int = 0
    partitions: tuple[PartitionStatus, ...] = ()
    findings: tuple[Finding, ...] = ()
    """Findings of the table, without findings of single days."""
    topics: tuple[TopicLag, ...] = ()
    """The topics that the table reads, by the figures of their workers."""
    unfit_values: tuple[UnfitValues, ...] | None = None
    """Unfit values of the last `unfit_days`; None if no table is named."""
    unfit_days: int = _UNFIT_DAYS
    catalog_holder: Holder | None = None
    """The holder of the catalog lease, and since when."""
    live_worker: Holder | None = None
    """The live worker that converts the objects of the table, and since when."""


def read_status(
    context: StageContext, *, now: datetime, names: Collection[str] | None = None, day: date | None = None
) -> tuple[TableStatus, ...]:
    """The status of the tables named, or of all. Unfit values are counted for named ones only."""
    named = context.choose_with_dropped(names)
    tables = [table for table in named if not table.dropped]
    ids = [table.table_id for table in tables]
    with context.database.begin() as connection:
        loaded = partitions.load_of_tables(connection, ids, day)
        found: dict[int, list[Partition]] = {table: [] for table in ids}
        for item in loaded:
            found[item.table_id].append(item)
        figures = partition_figures(connection, ids)
        look = Look(
            context=context,
            connection=connection,
            tables=tables,
            now=now,
            day=day,
            loaded=loaded,
            has_drops=len(named) > len(tables),
        )
        findings = _by_place(find_all(look))
        with_topics = topic_tables(tables)
        topics = load_lags(connection, with_topics) if with_topics else []
        unfinished = look.unfinished
        holders = leases.holders_by_kind(connection, [LeaseKind.CATALOG, LeaseKind.LIVE], ids)
        since = now - timedelta(days=_UNFIT_DAYS)
        unfit = {} if names is None else unfit_values(connection, ids, since)
    return (
        *(
            TableStatus(table=name, findings=tuple(findings.get((name, None), ())))
            for name in (str(table.name) for table in named if table.dropped)
        ),
        *(
            TableStatus(
                table=str(table.name),
                pending=unfinished[table.table_id].pending if table.table_id in unfinished else 0,
                claimed=unfinished[table.table_id].claimed if table.table_id in unfinished else 0,
                partitions=tuple(
                    _partition_status(table, item, figures[item.partition_id], findings)
                    for item in found[table.table_id]
                ),
                findings=tuple(findings.get((str(table.name), None), ())),
                topics=tuple(topic for topic in topics if topic.table_id == table.table_id),
                unfit_values=None if names is None else tuple(unfit.get(table.table_id, ())),
                catalog_holder=holders[LeaseKind.CATALOG].get(table.table_id),
                live_worker=holders[LeaseKind.LIVE].get(table.table_id),
            )
            for table in tables
        ),
    )


_Places = Mapping[tuple[str | None, date | None], Sequence[Finding]]


def _by_place(findings: Iterable[Finding]) -> _Places:
    """Findings by table and date."""
    places: dict[tuple[str | None, date | None], list[Finding]] = {}
    for item in findings:
        places.setdefault((item.table, item.date), []).append(item)
    return places


def _partition_status(
    table: TableDefinition, item: Partition, figures: PartitionFigures, findings: _Places
) -> PartitionStatus:
    return PartitionStatus(
        table=str(table.name),
        date=item.date,
        state=item.state.value,
        rows=figures.rows,
        rows_erased=figures.rows_erased,
        small_objects=figures.small_objects,
        merged_objects=figures.merged_objects,
        unmerged_objects=figures.unmerged_objects,
        bytes=figures.merged_bytes + figures.unmerged_bytes,
        last_arrival=figures.last_arrival,
        findings=tuple(findings.get((str(table.name), item.date), ())),
    )
