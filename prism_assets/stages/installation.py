"""Keeps a database and its lake together: `prism table apply` joins them, everything else compares before it works."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from prism_assets.domain.errors import WrongLake
from prism_assets.domain.installation import Belonging, Installation, Place, belonging, wrong_lake_sentence
from prism_assets.failpoints import failpoint
from prism_assets.metadata import installation
from prism_assets.metadata.database import Database
from prism_assets.objectstore.lake import Lake
from prism_assets.objectstore.marker import marker_url, put_marker, read_marker
from prism_assets.objectstore.stores import Stores


@dataclass(frozen=True, kw_only=True)
class _LakeMatch:
    """A database and a lake as they were found. `known` is what PostgreSQL says, `found` what that means here."""

    place: Place
    known: Installation | None
    found: Belonging

    def wrong_lake(self, lake: Lake) -> WrongLake:
        return WrongLake(wrong_lake_sentence(self.found, self.known, self.place, marker_url(lake)))


def _look(database: Database, lake: Lake, stores: Stores) -> _LakeMatch:
    """Compares row and marker as they were at one time: an apply that joins them meanwhile makes it look again."""
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
    """Reads the marker only where it can matter: settings that name another lake may name none that exists."""
    place = lake.place
    found = belonging(known, place, None)
    if found is not Belonging.ELSEWHERE:
        found = belonging(known, place, read_marker(stores, lake))
    return _LakeMatch(place=place, known=known, found=found)


def check_lake(database: Database, lake: Lake, stores: Stores) -> Installation:
    """Returns what database and lake agree on; WrongLake if they do not belong together, and then nothing was done."""
    pair = _look(database, lake, stores)
    if pair.known is None or pair.found is not Belonging.OURS:
        raise pair.wrong_lake(lake)
    return pair.known


def preview_lake(database: Database, lake: Lake, stores: Stores, *, restore_marker: bool) -> tuple[str, ...]:
    """What `take_lake` would do, one line a step; WrongLake where it would refuse. The schema may be missing."""
    migrated = database.has_table("prism_installation")
    pair = _look(database, lake, stores) if migrated else _compare(lake, stores, None)
    return _plan(pair, lake, restore_marker=restore_marker)


def take_lake(
    database: Database, lake: Lake, stores: Stores, now: datetime, *, restore_marker: bool = False
) -> tuple[str, ...]:
    """Joins a database and a lake that belong to nobody else, and puts a marker back where that is asked for.

    First the row, then the marker, then the note in the row that the marker is there; the lines tell what was done.
    Dying after the first leaves a row that takes no lake yet; dying after the second a marker whose id stands in
    that row: nobody works meanwhile, and the next apply goes on.
    """
    pair = _look(database, lake, stores)
    known, lines = pair.known, _plan(pair, lake, restore_marker=restore_marker)
    if pair.found is Belonging.FREE:
        with database.begin() as connection:
            known = installation.begin(connection, pair.place, now)
        failpoint("apply.after_identity")
        pair = _compare(lake, stores, known)  # another apply may have taken this lake, or another one, meanwhile
    if known is None or pair.found in (Belonging.ELSEWHERE, Belonging.FOREIGN):
        raise pair.wrong_lake(lake)
    if pair.found is not Belonging.OURS and not put_marker(stores, lake, known):
        pair = _compare(lake, stores, known)  # it is there: of another apply at once, or of one that died
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
