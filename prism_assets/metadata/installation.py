"""Statements on prism_installation, which has one row."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection, text

from prism_assets.domain.installation import Installation, Place
from prism_assets.metadata.schema_version import STORED, SchemaVersion


def load(connection: Connection) -> Installation | None:
    """Returns the lake of this database, or None before the first `prism table apply`. Reads without locks.

    Raises WrongSchema if this code cannot work on the tables, OldSchema if they have to be migrated first.
    """
    row = connection.execute(text(_LOAD)).one()
    SchemaVersion.of(row.version).check()
    if row.installation_id is None:
        return None
    return Installation(
        installation_id=row.installation_id,
        place=Place(bucket=row.bucket_name, prefix=row.key_prefix, endpoint=row.endpoint),
        marked=row.mark_time is not None,
    )


_LOAD = f"SELECT v.version, i.* FROM (SELECT {STORED} AS version) v LEFT JOIN prism_installation i ON true"


def begin(connection: Connection, place: Place, now: datetime) -> Installation:
    """Records the new id that a lake at this place is about to be marked with. Returns the record.

    Locks the one row. A row with a marked lake, or for the same place, stays unchanged: two concurrent applies both
    continue with the id of the first.
    """
    values = {"bucket": place.bucket, "prefix": place.prefix, "endpoint": place.endpoint, "now": now}
    connection.execute(text(_BEGIN), values)
    known = load(connection)
    assert known is not None, "it was inserted just now"
    return known


_BEGIN = """
INSERT INTO prism_installation AS i (installation_id, bucket_name, key_prefix, endpoint, create_time)
VALUES (gen_random_uuid(), :bucket, :prefix, :endpoint, :now)
ON CONFLICT (only_row) DO UPDATE SET installation_id = EXCLUDED.installation_id,
    bucket_name = EXCLUDED.bucket_name, key_prefix = EXCLUDED.key_prefix, endpoint = EXCLUDED.endpoint,
    create_time = EXCLUDED.create_time
WHERE i.mark_time IS NULL AND (i.bucket_name, i.key_prefix) <> (EXCLUDED.bucket_name, EXCLUDED.key_prefix)
"""


def confirm(connection: Connection, installation_id: str, endpoint: str, now: datetime) -> bool:
    """Records that the lake at this place has the marker with this id. Returns False if the row now has another id.

    Locks the one row.
    """
    values = {"id": installation_id, "endpoint": endpoint, "now": now}
    return bool(connection.execute(text(_CONFIRM), values).rowcount)


_CONFIRM = """
UPDATE prism_installation SET mark_time = coalesce(mark_time, :now), endpoint = :endpoint
WHERE installation_id = :id
"""
