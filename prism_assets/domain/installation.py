"""The bond between a database and its lake: both carry the same random id.

A worker with another bucket, prefix or endpoint would record rows as done without readers seeing them, and change the
catalog.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a lake is. The endpoint is the store's address for people; a store may move."""

    bucket: str
    prefix: str
    endpoint: str

    @property
    def url(self) -> str:
        """`s3://bucket/prefix`."""
        return f"s3://{self.bucket}/{self.prefix}"


@dataclass(frozen=True, kw_only=True)
class Installation:
    """PostgreSQL's record of its lake. `marked`: the lake's marker was seen with the same id."""

    installation_id: str
    place: Place
    marked: bool


class Belonging(Enum):
    """The relation between a database and a lake."""

    OURS = "ours"
    FREE = "free"
    """Neither is bound. `prism table apply` binds them, or has begun to."""
    MARKER_MISSING = "marker missing"
    ELSEWHERE = "elsewhere"
    """The database belongs to a lake in another place."""
    FOREIGN = "foreign"
    """The lake belongs to another database."""


def belonging(known: Installation | None, place: Place, marker_id: str | None) -> Belonging:
    """Compares PostgreSQL's row with the place in the settings and the marker's id there."""
    if known is not None and not known.marked and not _is_at(known, place):
        known = None  # an apply died before it marked its lake, so nothing is bound yet
    if known is None:
        return Belonging.FREE if marker_id is None else Belonging.FOREIGN
    if not _is_at(known, place):
        return Belonging.ELSEWHERE
    if marker_id is None:
        return Belonging.MARKER_MISSING if known.marked else Belonging.FREE
    if marker_id != known.installation_id:
        return Belonging.FOREIGN
    return Belonging.OURS if known.marked else Belonging.FREE


def _is_at(known: Installation, place: Place) -> bool:
    return (known.place.bucket, known.place.prefix) == (place.bucket, place.prefix)


def wrong_lake_sentence(found: Belonging, known: Installation | None, place: Place, marker_url: str) -> str:
    """Returns the error sentence with the remedy for a mismatch."""
    if found is Belonging.FREE:
        return f"no lake belongs to this database yet: run `prism table apply` to take {place.url}"
    if found is Belonging.ELSEWHERE and known is not None:
        return (
            f"this database belongs to the lake {known.place.url}, and the settings name {place.url}: "
            "correct PRISM_BUCKET and PRISM_PREFIX, or PRISM_DATABASE_URL"
        )
    if found is Belonging.FOREIGN:
        return (
            f"the lake {place.url} belongs to another database: {marker_url} has its id; correct PRISM_BUCKET, "
            "PRISM_PREFIX or PRISM_DATABASE_URL, or, if that database is gone for good, delete this object and run "
            "`prism table apply --restore-marker`"
        )
    return (
        f"the lake {place.url} has no marker {marker_url}, so it may be another one (at {place.endpoint}): correct "
        "PRISM_S3_ENDPOINT, or, if the marker was deleted, run `prism table apply --restore-marker`"
    )
