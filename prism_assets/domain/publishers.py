"""The publishers of Glue: which of them are to show a table, in which order, and what people are told of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from prism_assets.domain.partitions import GLUE, SYMLINK
from prism_assets.domain.tables import TableDefinition


@dataclass(frozen=True)
class PublisherWords:
    """What the catalog of a publisher is called, and each of its lists of files.

    Sentences about it begin with `prefix`: nothing for the first one, whose catalog is the one that is meant where
    nothing is said. `shown` is how a table is shown there.
    """

    catalog: str
    file_list: str
    prefix: str
    shown: str


_WORDS: Mapping[str, PublisherWords] = {
    GLUE: PublisherWords(catalog="the catalog", file_list="manifest", prefix="", shown="in the catalog"),
    SYMLINK: PublisherWords(
        catalog="the catalog of symlinks", file_list="list of symlinks", prefix="symlinks: ", shown="by symlinks"
    ),
}
GLUE_PUBLISHERS: tuple[str, ...] = tuple(_WORDS)
"""The names of the publishers of Glue, the first one first."""


def words_of(publisher: str) -> PublisherWords:
    """What people are told of a publisher."""
    return _WORDS[publisher]


def wanted_publishers(table: TableDefinition) -> tuple[str, ...]:
    """The publishers that are to show a table, in order: none of one that is dropped."""
    if table.dropped:
        return ()
    return GLUE_PUBLISHERS if table.symlink else (GLUE,)
