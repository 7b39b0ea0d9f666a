"""The whole examination: records, catalog, store, and on request every manifest and every small object."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from sqlalchemy import Connection

from prism_assets.domain.errors import PrismError, WrongLake, WrongUse
from prism_assets.domain.findings import Acts, Finding
from prism_assets.domain.names import TableName
from prism_assets.domain.problems import Problem
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.text import counted
from prism_assets.metadata import clock, invariants
from prism_assets.metadata.kafka import audit
from prism_assets.metadata.schema_version import load_schema_version
from prism_assets.metadata.tables import drops
from prism_assets.stages.context import StageContext
from prism_assets.stages.doctor.optimizers import look_at_optimizers
from prism_assets.stages.doctor.report import DoctorReport
from prism_assets.stages.doctor.shown import look_at_catalog, look_at_manifest
from prism_assets.stages.doctor.snapshots import look_at_snapshots
from prism_assets.stages.doctor.stored import look_at_store, partitions_of
from prism_assets.stages.doctor.topics import look_at_brokers
from prism_assets.stages.erasure_records import find_held
from prism_assets.stages.findings.erasures import held_erasure
from prism_assets.stages.findings.invariants import find_violations
from prism_assets.stages.findings.registry import find_all
from prism_assets.stages.findings.subject import Look
from prism_assets.stages.findings.topics import topic_tables
from prism_assets.stages.repair.run import run_repair


def run_doctor(
    context: StageContext,
    *,
    names: Collection[str] | None = None,
    deep: bool = False,
    now: datetime | None = None,
) -> DoctorReport:
    """Examines the named tables, or all. Changes nothing, takes no lock, and may run beside everything else.

    The report names unreachable places, and the others are examined. An installation of the published design is
    examined in PostgreSQL alone, because it records no contents of objects. Without `now` the clock is the database's.
    """
    started = time.monotonic()
    with context.database.begin() as connection:
        invariants.begin_reading(connection)
        now = now or clock.database_time(connection)
        published_design = invariants.is_of_published_design(connection)
        notice = None if published_design else _notice(connection)
        going = set() if published_design else {drop.table_id for drop in drops.load_drops(connection, open_only=True)}
        known = {number: name for number, name in invariants.load_names(connection).items() if number not in going}
        chosen = _chosen(known, names)
    examination = _Examination(context, deep=deep)
    examined = [] if published_design else [table for table in context.choose_tables(names) if table.table_id in chosen]
    examined = examination.look_at_erasures(examined)
    sound = set(chosen) if published_design else {table.table_id for table in examined}
    named = {number: name for number, name in chosen.items() if number in sound}
    notes = [] if published_design else [*([notice] if notice else []), *_decided(context, examined)]
    findings = list(find_violations(context, named, published_design=published_design))
    if not published_design:
        findings += _for_a_person(context, examined, now, findings)
        examination.run(examined)
        examination.look_at_brokers(examined)
        notes += examination.notes
    return DoctorReport(
        findings=(*findings, *examination.findings),
        unseen=tuple(examination.unseen),
        tables=len(chosen),
        partitions=examination.partitions,
        objects=examination.objects,
        deep=deep,
        notes=tuple(notes),
        published_design=published_design,
        seconds=time.monotonic() - started,
    )


def _notice(connection: Connection) -> str | None:
    """Returns a sentence if the tables are of the next release. Raises WrongSchema if this code cannot read them."""
    version = load_schema_version(connection)
    version.check()
    return version.notice


def _for_a_person(
    context: StageContext, tables: Sequence[TableDefinition], now: datetime, known: Collection[Finding]
) -> list[Finding]:
    """Returns findings for a person, read in one transaction, without those already known from invariants."""
    places = {(item.kind, item.table, item.date) for item in known}
    with context.database.begin() as connection:
        invariants.begin_reading(connection)
        found = list(find_all(Look(context=context, connection=connection, tables=tables, now=now, whole=True)))
    return [item for item in found if item.acts is Acts.PERSON and (item.kind, item.table, item.date) not in places]


def _decided(context: StageContext, tables: Sequence[TableDefinition]) -> list[str]:
    """Returns a sentence on each range of offsets that a person skipped."""
    names = {table.table_id: str(table.name) for table in tables}
    if not (ids := topic_tables(tables)):
        return []
    with context.database.begin() as connection:
        invariants.begin_reading(connection)
        return [f"{names[item.table_id]}: {item}" for item in audit.load_skipped(connection, ids)]


def _chosen(known: dict[int, TableName], names: Collection[str] | None) -> dict[int, TableName]:
    unknown = sorted(set(names or ()) - {str(name) for name in known.values()})
    if unknown:
        raise WrongUse(f"there is no table {', '.join(unknown)}")
    return {number: name for number, name in known.items() if names is None or str(name) in names}


def _wrong_lake(error: WrongLake) -> Finding:
    return Finding(
        kind="wrong_lake",
        table=None,
        says=str(error),
        remedy="Until then nobody works, and only PostgreSQL was looked at",
        invariant="I1",
    )


class _Examination:
    """Findings outside of PostgreSQL so far."""

    def __init__(self, context: StageContext, *, deep: bool) -> None:
        self._context = context
        self._deep = deep
        self._catalogs: Mapping[int, Sequence[StageContext]] = {}
        self.findings: list[Finding] = []
        self.unseen: list[Problem] = []
        self.notes: list[str] = []
        self.partitions = 0
        self.objects = 0

    def look_at_erasures(self, tables: list[TableDefinition]) -> list[TableDefinition]:
        """Returns the tables that lack no erasure.

        The others are not examined further: repairs would bring their rows back.
        """
        if not tables:
            return tables
        try:
            held = find_held(self._context, tables)
        except PrismError as error:
            self.unseen.append(Problem.of(error, "all tables"))
            return tables
        for table in tables:
            self.findings += [held_erasure(str(table.name), item) for item in held.get(table.table_id, ())]
        return [table for table in tables if table.table_id not in held]

    def run(self, tables: list[TableDefinition]) -> None:
        """Examines catalogs, store and, if `deep`, contents of objects. In another lake nothing can be compared."""
        try:
            self._context.check_lake()
        except WrongLake as error:
            self.findings.append(_wrong_lake(error))
            return
        except PrismError as error:
            if not self.unseen:  # where the lake cannot be reached, the look at erasures has said so
                self.unseen.append(Problem.of(error, "all tables"))
            return
        self._catalogs = self._context.for_catalogs(tables)
        for table in tables:
            for catalog in self._catalogs[table.table_id]:
                self._look_at_catalog(catalog, table)
            if table.iceberg:
                self._look_at_iceberg(table)
        self._context.progress(f"doctor: {counted(self.partitions, 'partition')} in the catalog")
        stored = look_at_store(self._context, tables)
        self.findings += stored.findings
        self.unseen += stored.unseen
        self.objects += stored.objects
        self._context.progress(f"doctor: {counted(self.objects, 'object')} in the store")
        if self._deep:
            self._look_deeper(tables)

    def look_at_brokers(self, tables: list[TableDefinition]) -> None:
        """Compares positions in topics with the ends of their logs."""
        found = look_at_brokers(self._context, tables)
        self.findings += found.findings
        self.unseen += found.unseen
        self.notes += found.notes

    def _look_at_catalog(self, catalog: StageContext, table: TableDefinition) -> None:
        try:
            count, found = look_at_catalog(catalog, table)
        except PrismError as error:
            self.unseen.append(Problem.of(error, str(table.name)))
            return
        self.partitions += count if catalog.publisher is self._context.publisher else 0
        self.findings += found

    def _look_at_iceberg(self, table: TableDefinition) -> None:
        try:
            self.findings += look_at_snapshots(self._context, table)
            if self._context.settings.iceberg_catalog == "glue":
                self.findings += look_at_optimizers(self._context, table)
        except PrismError as error:
            self.unseen.append(Problem.of(error, str(table.name)))

    def _look_deeper(self, tables: list[TableDefinition]) -> None:
        """Examines every manifest, and by a dry run of repair every needed small object."""
        for table, partition in partitions_of(self._context, tables):
            for catalog in self._catalogs[table.table_id]:
                try:
                    self.findings += look_at_manifest(catalog, table, partition)
                except PrismError as error:
                    self.unseen.append(Problem.of(error, str(table.name), partition.date))
        names = [str(table.name) for table in tables]
        report = run_repair(self._context, names=names, deep=True, dry_run=True)
        for item in report.partitions:
            if item.damaged:
                self.findings.append(
                    Finding(
                        kind="damaged_objects",
                        table=item.table,
                        date=item.date,
                        says=f"{counted(item.damaged, 'small object does', 'small objects do')} not hold the rows that "
                        "were committed",
                        invariant="I4",
                        count=item.damaged,
                        remedy=f"Run `prism repair --deep --table {item.table} --date {item.date}`",
                    )
                )
        self.unseen += [
            Problem(table=item.table, date=item.date, reason=f"{item.key} {item.reason}", transient=True)
            for item in report.irreparable
            if item.transient
        ]
