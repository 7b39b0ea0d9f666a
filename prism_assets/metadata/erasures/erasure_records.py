"""Statements on prism_erasure_records: the erasures recorded in the lake, and PostgreSQL's knowledge of each.

There is one row per erasure, and rows are never deleted.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, text

from prism_assets.domain.erasures.records import ErasureRecord, HeldErasure, RecordState
from prism_assets.domain.erasures.rules import ErasureRule
from prism_assets.domain.files.keys import table_folder
from prism_assets.metadata.erasures import erasures
from prism_assets.metadata.tables import tables


@dataclass(frozen=True, kw_only=True)
class AnnouncedErasure:
    """An erasure whose rules are stored but not in force. Each rule comes with its table's id."""

    record: ErasureRecord
    rules: tuple[tuple[int, ErasureRule], ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns in its predicate."""
        return tuple(sorted(column.name for column in self.rules[0][1].defined))


def announce(
    connection: Connection, folder: str, digest: str, rules: Sequence[tuple[int, ErasureRule]]
) -> AnnouncedErasure:
    """Stores the rules of an erasure under its open record or a new one. Locks the record's row.

    Two concurrent calls may announce it twice. Then it gets two records and one rule.
    """
    values = {"folder": folder, "digest": digest}
    known = connection.execute(text(_OPEN), values).first()
    time = connection.execute(text("SELECT clock_timestamp()")).scalar_one() if known is None else known.create_time
    made = AnnouncedErasure(record=ErasureRecord(time, digest, folder), rules=tuple(rules))
    document = json.dumps([{"table": number, **_document(rule)} for number, rule in rules])
    connection.execute(
        text(_ANNOUNCE),
        {
            **values,
            "name": made.record.name,
            "time": time,
            "rules": document,
            "columns": list(made.columns),
        },
    )
    return made


_OPEN = """
SELECT create_time FROM prism_erasure_records
WHERE folder = :folder AND digest = :digest AND state IN ('announced', 'missing')
ORDER BY create_time DESC LIMIT 1 FOR UPDATE
"""
_ANNOUNCE = """
INSERT INTO prism_erasure_records (record_name, folder, digest, create_time, state, column_names, rules)
VALUES (:name, :folder, :digest, :time, 'announced', CAST(:columns AS text[]), CAST(:rules AS jsonb))
ON CONFLICT (record_name) DO UPDATE
SET state = 'announced', rules = excluded.rules, column_names = excluded.column_names, state_time = clock_timestamp()
"""


def _document(rule: ErasureRule) -> dict[str, Any]:
    return {
        "predicate": rule.predicate,
        "columns": list(rule.columns),
        "values": [[item.column_id, list(item.values)] for item in rule.values],
        "secrets": list(rule.secrets),
    }


def load_announced(connection: Connection) -> list[AnnouncedErasure]:
    """Returns all announced erasures, the oldest first. Reads without locks."""
    return [
        AnnouncedErasure(
            record=_record(row),
            rules=tuple((item["table"], erasures.rule_of_document(item)) for item in row.rules),
        )
        for row in connection.execute(text(_ANNOUNCED))
    ]


_ANNOUNCED = "SELECT * FROM prism_erasure_records WHERE state = 'announced' ORDER BY record_name"


def put_in_force(connection: Connection, announced: AnnouncedErasure) -> bool:
    """Creates the rules of an announced erasure. Returns False if another caller already did.

    The caller holds the epoch lock. Locks the erasure's row. An erasure missing from PostgreSQL after a restore stays
    `repeated` until all objects are rewritten. Missing tables get no rule.
    """
    values = {"folder": announced.record.folder, "digest": announced.record.digest}
    states = connection.execute(text(_LOCK_OPEN), values).scalars().all()
    if RecordState.ANNOUNCED.value not in states:
        return False
    known = {table.table_id for table in tables.load_definitions(connection)}
    for table_id, rule in announced.rules:
        if table_id in known:
            erasures.insert_erasure(connection, table_id, rule, announced.record.digest)
    connection.execute(text(_FORCE), values)
    return True


_LOCK_OPEN = """
SELECT state FROM prism_erasure_records
WHERE folder = :folder AND digest = :digest AND state IN ('announced', 'missing') ORDER BY record_name FOR UPDATE
"""
_FORCE = """
UPDATE prism_erasure_records SET rules = NULL, state_time = clock_timestamp(),
    state = CASE WHEN was_missing THEN 'repeated' ELSE 'in_force' END
WHERE folder = :folder AND digest = :digest AND state IN ('announced', 'missing')
"""


def load_known_until(connection: Connection) -> datetime | None:
    """Returns the time up to which all erasures are known and in force, or None. Takes no locks.

    A restore loses only the last rows, so every erasure missing from PostgreSQL is newer than the newest known one.
    """
    found: datetime | None = connection.execute(text(_NEWEST)).scalar_one()
    return found


_NEWEST = """
SELECT least(max(create_time), min(create_time) FILTER (WHERE state = 'announced')) FROM prism_erasure_records
"""


def find_unknown(connection: Connection, records: Collection[ErasureRecord]) -> list[ErasureRecord]:
    """Returns the records unknown to PostgreSQL. Reads without locks."""
    if not records:
        return []
    by_name = {record.name: record for record in records}
    known = set(connection.execute(text(_KNOWN), {"names": list(by_name)}).scalars())
    return [record for name, record in by_name.items() if name not in known]


_KNOWN = "SELECT record_name FROM prism_erasure_records WHERE record_name = ANY(:names)"


def note_missing(connection: Connection, record: ErasureRecord, columns: Sequence[str]) -> None:
    """Stores a record unknown to PostgreSQL: as in force if the table has its rule, else as missing. Locks no row."""
    ids = [table.table_id for table in tables.load_definitions(connection) if table_folder(table.name) == record.folder]
    values = {
        "name": record.name,
        "folder": record.folder,
        "digest": record.digest,
        "time": record.create_time,
        "columns": list(columns),
        "tables": ids,
    }
    connection.execute(text(_NOTE), values)


_NOTE = """
INSERT INTO prism_erasure_records (record_name, folder, digest, create_time, column_names, state, was_missing)
SELECT :name, :folder, :digest, :time, CAST(:columns AS text[]), CASE WHEN known THEN 'in_force' ELSE 'missing' END,
    NOT known
FROM (SELECT EXISTS (SELECT 1 FROM prism_erasures WHERE prism_table_id = ANY(:tables) AND digest = :digest) AS known) k
ON CONFLICT (record_name) DO NOTHING
"""


def end_repetition(connection: Connection, digest: str) -> None:
    """Unblocks a table once no rule of its repeated erasure has anything left to rewrite. Locks the row."""
    connection.execute(text(_END), {"digest": digest})


_END = """
UPDATE prism_erasure_records SET state = 'in_force', state_time = clock_timestamp()
WHERE digest = :digest AND state = 'repeated'
    AND NOT EXISTS (SELECT 1 FROM prism_erasures WHERE digest = :digest AND state = 'rewriting')
"""


def withdraw(connection: Connection, record: ErasureRecord) -> None:
    """Records that a missing erasure shall not be repeated. Locks its row."""
    connection.execute(text(_WITHDRAW), {"name": record.name})


_WITHDRAW = """
UPDATE prism_erasure_records SET state = 'withdrawn', state_time = clock_timestamp()
WHERE record_name = :name AND state = 'missing'
"""


def load_held(connection: Connection) -> dict[int, tuple[HeldErasure, ...]]:
    """Returns erasures that block tables, the oldest first, by table id. Both tables of a join table have them.

    Reads without locks. Usually the first query finds none and is the only one.
    """
    rows = connection.execute(text(_HELD)).all()
    return _by_table(connection, [(_record(row), RecordState(row.state), tuple(row.column_names)) for row in rows])


def held_by(connection: Connection, records: Collection[ErasureRecord]) -> dict[int, tuple[HeldErasure, ...]]:
    """Returns erasures that will block tables once these records are stored, by table id. Reads without locks.

    A record does not block a table that has its rule.
    """
    found = _by_table(connection, [(record, RecordState.MISSING, ()) for record in records])
    lacking = {
        number: tuple(item for item in held if not erasures.has_rule(connection, number, item.record.digest))
        for number, held in found.items()
    }
    return {number: held for number, held in lacking.items() if held}


def _by_table(
    connection: Connection, noted: Sequence[tuple[ErasureRecord, RecordState, tuple[str, ...]]]
) -> dict[int, tuple[HeldErasure, ...]]:
    if not noted:
        return {}
    logs = {row.changes_of: row.prism_table_id for row in connection.execute(text(_LOGS))}
    found: dict[int, tuple[HeldErasure, ...]] = {}
    for table in tables.load_definitions(connection):
        held = tuple(
            HeldErasure(record=record, state=state, table=str(table.name), columns=columns)
            for record, state, columns in noted
            if record.folder == table_folder(table.name)
        )
        for number in filter(None, (table.table_id, logs.get(table.table_id))) if held else ():
            found[number] = (*found.get(number, ()), *held)
    return found


# An erasure announced again blocks until its repetition ends.
_HELD = """
SELECT * FROM prism_erasure_records
WHERE state IN ('announced', 'missing', 'repeated') AND was_missing ORDER BY record_name
"""
_LOGS = "SELECT prism_table_id, changes_of FROM prism_tables WHERE changes_of IS NOT NULL"


def _record(row: Row[Any]) -> ErasureRecord:
    return ErasureRecord(row.create_time, row.digest, row.folder)
