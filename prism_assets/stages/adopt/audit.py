"""Audits an installation of the published design: its database against its rules and its objects."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from prism_assets.domain.errors import WrongUse
from prism_assets.domain.files.keys import SmallObjectKey, TableKeys
from prism_assets.domain.findings import Finding
from prism_assets.domain.names import TableName
from prism_assets.domain.tables.adopted import AdoptedTable
from prism_assets.domain.text import counted
from prism_assets.metadata import invariants, published_design
from prism_assets.metadata.database import Database
from prism_assets.metadata.published_design import AdoptedDay
from prism_assets.stages.adopt.manifests import compare_manifest
from prism_assets.stages.context import StageContext
from prism_assets.stages.findings.invariants import Rule, find_violations

_WITHOUT_ROWS = Rule(
    invariant="I1",
    kind="object_without_rows",
    statement=published_design.WITHOUT_ROWS,
    what=("staging object has", "staging objects have"),
    says="{count} no row: empty, unreadable as a whole, or never converted: {example}",
    remedy="Compare with the lines of the object; `prism history` reads it again into a new table",
)


@dataclass(frozen=True, kw_only=True)
class AuditReport:
    """The findings of an audit."""

    tables: int
    days: int
    objects: int
    """Objects that were compared with the store."""
    findings: tuple[Finding, ...]

    def describe(self) -> str:
        """Returns the figures in a sentence."""
        found = counted(len(self.findings), "finding") if self.findings else "nothing found"
        return (
            f"{counted(self.tables, 'table')}, {counted(self.days, 'day')}, {counted(self.objects, 'object')}: {found}"
        )


@dataclass(frozen=True, kw_only=True)
class Installation:
    """An installation of the published design."""

    database: Database
    bucket: str
    prefix: str

    def load(self, names: Collection[str] | None = None) -> list[AdoptedTable]:
        """Returns its tables, the named ones or all. Raises WrongUse for a database of another kind."""
        with self.database.repeatable_read() as connection:
            missing = published_design.missing_tables(connection)
            if missing or not invariants.is_of_published_design(connection):
                lacks = f": it lacks {', '.join(missing)}" if missing else ": it is one of prism_assets itself"
                raise WrongUse(f"the database holds no installation of the published design{lacks}")
            tables = published_design.load_tables(connection)
        known = {str(table.name): table for table in tables}
        if unknown := sorted(set(names or ()) - set(known)):
            raise WrongUse(f"there is no table {', '.join(unknown)} (there are: {', '.join(known)})")
        return [table for name, table in known.items() if names is None or name in names]


def run_audit(context: StageContext, old: Installation, names: Collection[str] | None = None) -> AuditReport:
    """Audits the named tables, or all: rows in PostgreSQL, then each readable object in the store. Changes nothing.

    The memory is that of one day. Days that change meanwhile may be reported; a second audit then differs.
    """
    tables = old.load(names)
    known: Mapping[int, TableName] = {table.table_id: table.name for table in tables}
    context = replace(context, database=old.database)
    findings = list(find_violations(context, known, published_design=True))
    with old.database.repeatable_read() as connection:
        found = invariants.find_violations(connection, _WITHOUT_ROWS.statement, list(known))
        findings += [_WITHOUT_ROWS.finding(item, known) for item in found]
        if unknown := published_design.count_unknown(connection):
            findings.append(_unknown(unknown))
    days = objects = 0
    for table in tables:
        keys = TableKeys(bucket=old.bucket, prefix=old.prefix, name=table.name)
        with old.database.repeatable_read() as connection:
            of_table = published_design.load_days(connection, table.table_id)
        for day in of_table:
            expected = _expected(old.database, keys, day)
            findings += _compare(context, table, keys, day, expected)
            days, objects = days + 1, objects + len(expected)
        context.progress(f"adopt: {table.name}, {counted(len(of_table), 'day')}")
    return AuditReport(tables=len(tables), days=days, objects=objects, findings=tuple(findings))


def _unknown(count: int) -> Finding:
    return Finding(
        kind="unknown_objects",
        table=None,
        says=f"{counted(count, 'object was', 'objects were')} given to no stream",
        remedy="See prism_unknown_staging_objects; a stream with their folder reads them",
        count=count,
        invariant="I1",
    )


def _expected(database: Database, keys: TableKeys, day: AdoptedDay) -> dict[str, int]:
    """Returns the keys and lengths of the readable objects of a day.

    Readers of a switched day read its merged objects, and the small objects above the last merged one. Small objects
    below may be deleted already.
    """
    with database.repeatable_read() as connection:
        ranges = published_design.load_ranges(connection, day.partition_id) if day.switched else []
        covered = max((item.upper_bound for item in ranges), default=0)
        small = published_design.load_small_objects(connection, day.partition_id, covered)
    found = {keys.merged_object(day.date, item.lower_bound, item.upper_bound): item.content_length for item in ranges}
    return found | {
        keys.small_object(day.date, item.staging_object_id, delayed=item.delayed): item.content_length for item in small
    }


def _compare(
    context: StageContext, table: AdoptedTable, keys: TableKeys, day: AdoptedDay, expected: Mapping[str, int]
) -> Iterator[Finding]:
    prefixes = (keys.live_prefix(day.date), keys.delayed_prefix(day.date), keys.merged_prefix(day.date))
    stored = {item.key: item.content_length for prefix in prefixes for item in context.stores.list(keys.bucket, prefix)}
    missing = sorted(key for key in expected if key not in stored)
    wrong = sorted(key for key, length in expected.items() if stored.get(key, length) != length)
    stray = [] if day.switched else sorted(key for key in stored if _is_live(keys, key) and key not in expected)
    for kind, says, invariant, found in (
        ("missing_object", "does not exist", "I1", missing),
        ("wrong_length", "has another length than recorded, and readers of a manifest fail", "I4", wrong),
        ("live_without_record", "is readable and not recorded: no merge takes its rows", "I3", stray),
    ):
        if found:
            yield Finding(
                kind=kind,
                table=str(table.name),
                date=day.date,
                says=f"{counted(len(found), 'object')}, such as s3://{keys.bucket}/{found[0]}, {says}",
                remedy="Keep all staging objects of the day: `prism history` makes its rows again in a new table",
                count=len(found),
                invariant=invariant,
            )
    yield from compare_manifest(context, table, keys, day, stored)


def _is_live(keys: TableKeys, key: str) -> bool:
    parsed = keys.parse(key)
    return isinstance(parsed, SmallObjectKey) and not parsed.delayed
