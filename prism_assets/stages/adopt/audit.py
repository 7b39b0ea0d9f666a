"""Audits an installation of the published design: its database against its rules and its objects."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from prism_assets.domain.errors import WrongUse
from prism_assets.domain.files.keys import TableKeys
from prism_assets.domain.findings import Finding
from prism_assets.domain.names import NAME_RULE, TableName, is_name
from prism_assets.domain.tables.adopted import AdoptedTable
from prism_assets.domain.text import counted
from prism_assets.metadata import invariants, published_design
from prism_assets.metadata.database import Database
from prism_assets.metadata.published_design import AdoptedDay
from prism_assets.stages.adopt.manifests import REMEDY_OF_DAY, compare_manifest
from prism_assets.stages.context import StageContext
from prism_assets.stages.findings.invariants import Rule, find_violations

_PART = 50_000
"""Small objects of a day that are compared at a time."""
_LAST_ID = (1 << 63) - 1
_WITHOUT_NAME = Rule(
    invariant="I1",
    kind="rows_without_name",
    statement=published_design.WITHOUT_NAME,
    what=("row names", "rows name"),
    says="{count} no object, so their rows cannot be looked for: {example}",
    remedy="Look for the reason in the former installation, and delete or complete them there",
)
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
        """Returns its tables, the named ones or all. Raises WrongUse for a database of another kind.

        Also refuses names that are no names of tables: as a path they could lead to another folder.
        """
        with self.database.repeatable_read() as connection:
            missing = published_design.missing_parts(connection)
            if missing or not invariants.is_of_published_design(connection):
                lacks = f": it lacks {', '.join(missing)}" if missing else ": it is one of prism_assets itself"
                raise WrongUse(f"the database holds no installation of the published design{lacks}")
            tables = published_design.load_tables(connection)
        known = {str(table.name): table for table in tables}
        if unknown := sorted(set(names or ()) - set(known)):
            raise WrongUse(f"there is no table {', '.join(unknown)} (there are: {', '.join(known)})")
        chosen = [table for name, table in known.items() if names is None or name in names]
        if wrong := [name for table in chosen for name in _parts(table.name) if not is_name(name)]:
            raise WrongUse(f"the name {wrong[0]!a} {NAME_RULE}: leave its table out, and name the others by --table")
        return chosen


def _parts(name: TableName) -> tuple[str, ...]:
    physical = (name.physical_schema, name.physical_table)
    return name.schema, name.table, *(part for part in physical if part is not None)


def run_audit(context: StageContext, old: Installation, names: Collection[str] | None = None) -> AuditReport:
    """Audits the named tables, or all: rows in PostgreSQL, then each readable object in the store. Changes nothing.

    The memory is that of a part of a day. Days that change meanwhile may be reported; a second audit then differs.
    """
    tables = old.load(names)
    known: Mapping[int, TableName] = {table.table_id: table.name for table in tables}
    context = replace(context, database=old.database)
    findings = list(find_violations(context, known, published_design=True))
    with old.database.repeatable_read() as connection:
        for rule in (_WITHOUT_NAME, _WITHOUT_ROWS):
            found = invariants.find_violations(connection, rule.statement, list(known))
            findings += [rule.finding(item, known) for item in found]
        if unknown := published_design.count_unknown(connection):
            findings.append(_unknown(unknown))
    days = objects = 0
    for table in tables:
        keys = TableKeys(bucket=old.bucket, prefix=old.prefix, name=table.name)
        with old.database.repeatable_read() as connection:
            of_table = published_design.load_days(connection, table.table_id)
        for day in of_table:
            compared = _compare(context, old.database, keys, day)
            findings += _findings(table, keys, day, compared)
            findings += compare_manifest(context, table, keys, day)
            days, objects = days + 1, objects + compared.objects
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


@dataclass
class _Compared:
    """What the comparison of a day found: for each fault the number of objects, and the first key."""

    objects: int = 0
    missing: tuple[int, str] = (0, "")
    wrong: tuple[int, str] = (0, "")
    stray: tuple[int, str] = (0, "")

    def add(self, expected: Mapping[str, int | None], stored: Mapping[str, int], stray: Collection[str]) -> None:
        """Adds expected objects with their lengths, stored ones, and readable ones that nobody expects."""
        self.objects += len(expected)
        wrong = [key for key, length in expected.items() if key in stored and stored[key] != length]
        self.missing = _more(self.missing, [key for key in expected if key not in stored])
        self.wrong = _more(self.wrong, wrong)
        self.stray = _more(self.stray, stray)


def _more(before: tuple[int, str], found: Collection[str]) -> tuple[int, str]:
    return (before[0] + len(found), before[1] or min(found)) if found else before


def _compare(context: StageContext, database: Database, keys: TableKeys, day: AdoptedDay) -> _Compared:
    """Compares the objects that have the readable rows of a day with the store, a part of the day at a time.

    Readers of a switched day read its merged objects, and the small objects above the last merged one. Small objects
    below may be deleted already.
    """
    with database.repeatable_read() as connection:
        ranges = published_design.load_ranges(connection, day.partition_id) if day.switched else []
        above = max((item.upper_bound for item in ranges), default=0)
        ends = published_design.split_small_objects(connection, day.partition_id, above, _PART)
    result = _Compared()
    merged = {keys.merged_object(day.date, item.lower_bound, item.upper_bound): item.content_length for item in ranges}
    if merged:
        result.add(merged, _stored(context, keys, keys.merged_prefix(day.date), None, None), ())
    for after, until in pairwise((-1, *ends, _LAST_ID)):
        with database.repeatable_read() as connection:
            small = published_design.load_small_objects(connection, day.partition_id, above, after, until)
        for delayed in (False, True):
            prefix = keys.delayed_prefix(day.date) if delayed else keys.live_prefix(day.date)
            bounds = [keys.small_object(day.date, max(0, number), delayed=delayed) for number in (after, until)]
            expected = {
                keys.small_object(day.date, item.staging_object_id, delayed=delayed): item.content_length
                for item in small
                if item.delayed is delayed
            }
            readable = not (day.switched or delayed)
            if expected or readable:
                stored = _stored(context, keys, prefix, bounds[0] if after >= 0 else None, bounds[1])
                result.add(expected, stored, [key for key in stored if readable and key not in expected])
    return result


def _stored(
    context: StageContext, keys: TableKeys, prefix: str, after: str | None, until: str | None
) -> dict[str, int]:
    """Returns lengths by key, for after < key <= until. Leaves out keys that are not of the table."""
    found = {}
    for item in context.stores.list(keys.bucket, prefix, after=after):
        if until is not None and item.key > until:
            if context.stores.lists_in_order:
                break
        elif keys.parse(item.key) is not None:
            found[item.key] = item.content_length
    return found


def _findings(table: AdoptedTable, keys: TableKeys, day: AdoptedDay, compared: _Compared) -> Iterator[Finding]:
    for kind, says, invariant, (count, example) in (
        ("missing_object", "does not exist", "I1", compared.missing),
        ("wrong_length", "has another length than recorded, and readers of a manifest fail", "I4", compared.wrong),
        ("live_without_record", "is readable and not recorded: no merge takes its rows", "I3", compared.stray),
    ):
        if count:
            yield Finding(
                kind=kind,
                table=str(table.name),
                date=day.date,
                says=f"{counted(count, 'object')}, such as s3://{keys.bucket}/{example}, {says}",
                remedy=REMEDY_OF_DAY,
                count=count,
                invariant=invariant,
            )
