"""Keeps a database and its lake together. `prism table apply` joins them, and every other command compares first."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from prism_assets.domain.errors import NoLake, WrongLake
from prism_assets.domain.installation import Belonging, Installation, Place, belonging, wrong_lake_sentence
from prism_assets.failpoints import failpoint
from prism_assets.metadata import installation
from prism_assets.metadata.database import Database
from prism_assets.metadata.schema_version import load_schema_version
from prism_assets.objectstore.lake import Lake
from prism_assets.objectstore.marker import marker_url, put_marker, read_marker
from prism_assets.objectstore.stores import Stores


@dataclass(frozen=True, kw_only=True)
class _LakeMatch:
    """The relation of a database and a lake at one time."""

    place: Place
    known: Installation | None
    """The installation in PostgreSQL."""
    found: Belonging
    """Its relation to this lake."""

    def wrong_lake(self, lake: Lake) -> WrongLake:
        kind = NoLake if self.found is Belonging.FREE else WrongLake
        return kind(wrong_lake_sentence(self.found, self.known, self.place, marker_url(lake)))


def _match_lake(database: Database, lake: Lake, stores: Stores) -> _LakeMatch:
    """Compares row and marker at one time. Repeats if an apply joins them meanwhile."""
    known = _load(database)
    while (pair := _compare(lake, stores, known)).found is not Belonging.OURS:
        before, known = known, _load(database)
        if known == before:
            break
    return pair


def _load(database: Database) -> Installation | None:
    with database.begin() as connection:
        return installation.load(connection)


def _compare(lake: Lake, stores: Stores, known: Installation | None) -> _LakeMatch:
    """Reads the marker only if needed: settings for another lake may name a lake that does not exist."""
    place = lake.place
    found = belonging(known, place, None)
    if found is not Belonging.ELSEWHERE:
        found = belonging(known, place, read_marker(stores, lake))
    return _LakeMatch(place=place, known=known, found=found)


def check_lake(database: Database, lake: Lake, stores: Stores) -> Installation:
    """Returns the shared installation of database and lake. Changes nothing.

    Raises WrongSchema if this code cannot work on the tables in PostgreSQL, and WrongLake if database and lake do not
    belong together.
    """
    pair = _match_lake(database, lake, stores)
    if pair.known is None or pair.found is not Belonging.OURS:
        raise pair.wrong_lake(lake)
    return pair.known


def check_place(database: Database, lake: Lake) -> None:
    """Raises WrongSchema or WrongLake like `check_lake`, by PostgreSQL alone, where a process has no rights in S3."""
    known, place = _load(database), lake.place
    found = belonging(known, place, known.installation_id if known else None)
    if found is not Belonging.OURS:
        raise _LakeMatch(place=place, known=known, found=found).wrong_lake(lake)


def preview_lake(database: Database, lake: Lake, stores: Stores, *, restore_marker: bool) -> tuple[str, ...]:
    """Returns the steps of `take_lake`, a line each. Raises WrongLake if it would refuse. The schema may be missing."""
    with database.begin() as connection:
        is_new = load_schema_version(connection).stored == 0
    pair = _compare(lake, stores, None) if is_new else _match_lake(database, lake, stores)
    return _plan(pair, lake, restore_marker=restore_marker)


def take_lake(
    database: Database, lake: Lake, stores: Stores, now: datetime, *, restore_marker: bool = False
) -> tuple[str, ...]:
    """Joins a free database and a free lake, and restores a lost marker on request. Returns the steps, a line each.

    Writes the row, then the marker, then a note of the marker in the row. A death after the first leaves a row without
    a lake; after the second, a marker with the id of this row. No stage works meanwhile, and the next apply continues.
    """
    pair = _match_lake(database, lake, stores)
    known, lines = pair.known, _plan(pair, lake, restore_marker=restore_marker)
    if pair.found is Belonging.FREE:
        with database.begin() as connection:
            known = installation.begin(connection, pair.place, now)
        failpoint("apply.after_identity")
        pair = _compare(lake, stores, known)  # another apply may have taken this lake, or another one, meanwhile
    if known is None or pair.found in (Belonging.ELSEWHERE, Belonging.FOREIGN):
        raise pair.wrong_lake(lake)
    if pair.found is not Belonging.OURS and not put_marker(stores, lake, known):
        pair = _compare(lake, stores, known)  # it exists: written by a concurrent apply, or by one that died
        if pair.found is Belonging.FOREIGN:
            raise pair.wrong_lake(lake)
    failpoint("apply.after_marker")
    if not known.marked or known.place != pair.place:
        _confirm(database, lake, known, pair.place, now)
    return lines


def _confirm(database: Database, lake: Lake, known: Installation, place: Place, now: datetime) -> None:
    with database.begin() as connection:
        confirmed = installation.confirm(connection, known.installation_id, place.endpoint, now)
    if not confirmed:
        raise WrongLake(
            f"another `prism table apply` takes another lake for this database just now, so {marker_url(lake)} is "
            "nobody's: delete it, and let all settings name one lake"
        )


def _plan(pair: _LakeMatch, lake: Lake, *, restore_marker: bool) -> tuple[str, ...]:
    if pair.found is Belonging.OURS:
        return ()
    if pair.found is Belonging.FREE:
        return (f"take {pair.place.url} as the lake of this database",)
    if pair.found is Belonging.MARKER_MISSING and restore_marker:
        return (f"put back the marker {marker_url(lake)}",)
    raise pair.wrong_lake(lake)
