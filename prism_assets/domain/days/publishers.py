"""The publishers of Glue: for which tables, in which order, and their names for people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from prism_assets.domain.days.partitions import GLUE, SYMLINK
from prism_assets.domain.tables.definition import TableDefinition


@dataclass(frozen=True)
class PublisherWords:
    """Names of a publisher's catalog and of its file lists."""

    catalog: str
    file_list: str
    prefix: str
    """Begins sentences about it. Empty for the first publisher, the default."""
    shown: str
    """How a table is shown there."""


_WORDS: Mapping[str, PublisherWords] = {
    GLUE: PublisherWords(catalog="the catalog", file_list="manifest", prefix="", shown="in the catalog"),
    SYMLINK: PublisherWords(
        catalog="the catalog of symlinks", file_list="list of symlinks", prefix="symlinks: ", shown="by symlinks"
    ),
}
GLUE_PUBLISHERS: tuple[str, ...] = tuple(_WORDS)
"""Names of the Glue publishers, the default first."""


def words_of(publisher: str) -> PublisherWords:
    """Returns the names of a publisher for people."""
    return _WORDS[publisher]


def wanted_publishers(table: TableDefinition) -> tuple[str, ...]:
    """Returns the publishers of a table in order. A dropped table has none."""
    if table.dropped:
        return ()
    return GLUE_PUBLISHERS if table.symlink else (GLUE,)
