"""Matches files with tables, and finds free names and streams."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from prism_assets.domain.names import TableName
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.tables.diff import Moves, Origin
from prism_assets.domain.text import counted
from prism_assets.metadata.intake.streams import KnownStream
from prism_assets.metadata.tables.former_names import FormerName
from prism_assets.settings import SYMLINK_SUFFIX
from prism_assets.stages.apply.files import overlap, place_of


@dataclass(frozen=True)
class _Holder:
    """A table with a name in Glue."""

    of: TableDefinition
    """Its current definition, or its file if new."""
    name: TableName
    """Its name from now on."""
    by_symlinks: bool


@dataclass(frozen=True)
class TableNames:
    """Matches files with tables, and finds free names. A name still shown by Glue belongs to its former table."""

    known: Mapping[str, TableDefinition]
    files: Mapping[str, TableDefinition]
    former: Mapping[str, FormerName]
    heirs: Mapping[str, Sequence[TableDefinition]]
    dropped: Sequence[TableName]
    linked: Collection[int]

    @classmethod
    def of(
        cls,
        files: Sequence[TableDefinition],
        known: Sequence[TableDefinition],
        former: Sequence[FormerName],
        dropped: Sequence[TableName] = (),
        linked: Collection[int] = (),
    ) -> TableNames:
        """Indexes the files by their names and by `was`."""
        heirs: dict[str, list[TableDefinition]] = {}
        for table in files:
            if table.was is not None:
                heirs.setdefault(str(table.was), []).append(table)
        return cls(
            {str(table.name): table for table in known},
            {str(table.name): table for table in files},
            {str(item.name): item for item in former},
            heirs,
            dropped,
            linked,
        )

    def old(self, table: TableDefinition) -> TableDefinition | None:
        """Returns the current definition of a file's table, by its name or its former name."""
        return self.known.get(str(table.name)) or self.known.get(str(table.was))

    def without_file(self) -> Iterator[str]:
        """Yields one sentence about current tables without a file. Retired ones need none."""
        filed = {old.table_id for table in self.files.values() if (old := self.old(table))}
        open_ = (table for table in self.known.values() if not (table.retired or table.dropped or table.change_log))
        if left := sorted(str(table.name) for table in open_ if table.table_id not in filed):
            yield (
                f"{counted(len(left), 'table is', 'tables are')} in force without a file, and unchanged: "
                f"{', '.join(left)}. Their streams are still read. Put the files back; to end a table, put its file "
                "back with `retired: true`"
            )

    def problems(self, table: TableDefinition) -> Iterator[str]:
        """Yields the reasons against a table's name."""
        name, was, place = str(table.name), str(table.was), table.places.get("was", f"{table.path}:1: was")
        taken = self.former.get(name)
        old = self.old(table)
        if old is not None and old.dropped:
            place = table.places.get("table" if str(old.name) == name else "was", f"{table.path}:1: table")
            yield f"{place}: {old.name} is being dropped; remove it here, or wait until `prism status` names it no more"
            return
        if taken and (old is None or old.table_id != taken.table_id):
            place = table.places.get("table", f"{table.path}:1: table")
            yield (
                f"{place}: {name} is the former name of another table, which Glue shows until "
                f"{taken.end_time:%Y-%m-%d %H:%M}Z and the catalog run behind that; wait, or choose another name"
            )
        yield from self._symlink_problems(table)
        if table.was is None or was not in self.known:
            return
        if name in self.known:
            yield f"{place}: {was} and {name} are two tables, and no table takes the name of another; remove the field"
        elif len(self.heirs[was]) > 1:
            others = ", ".join(str(heir.name) for heir in self.heirs[was] if heir is not table)
            yield f"{place}: {was} is also said to be the former name of {others}; only one of them can be"
        elif was in self.files:
            yield (
                f"{place}: {was} is also defined in {self.files[was].path}; Glue shows it as the former name of {name} "
                "for grace_days, and no other table can have it before that is over"
            )
        elif self.known[was].iceberg is not None:
            yield (
                f"{place}: {was} is an Iceberg table, too, which is not renamed: take `iceberg` out of its file, run "
                "`prism iceberg publish`, rename it, and put `iceberg` in again"
            )

    def _symlink_problems(self, table: TableDefinition) -> Iterator[str]:
        """Yields names in Glue that one table has by symlinks and another one as its own."""
        for name, holders in self._held_by_symlinks.items():
            mine = [one for one in holders if one.of is self._owner(table)]
            if not mine or len(holders) == 1:
                continue
            own = next((one for one in mine if one.by_symlinks), mine[0])
            other = next(one for one in holders if one is not own)
            if own.by_symlinks:
                place = table.places.get("symlink", f"{table.path}:1: symlink")
                reason = f"is what readers of symlinks call {table.name}, and {other.name} has that name; remove one"
            else:
                place = table.places.get("table", f"{table.path}:1: table")
                reason = f"is what readers of symlinks call {other.name}; choose another name, or wait until it is free"
            yield f"{place}: {name} {reason}"

    def _owner(self, table: TableDefinition) -> TableDefinition:
        """Returns the current definition of a file's table, or the file's if new."""
        return self.old(table) or table

    @cached_property
    def _held_by_symlinks(self) -> Mapping[str, Sequence[_Holder]]:
        """The names in Glue that a table has by symlinks, each with all its holders: former, current and next ones."""
        known = list(self.known.values())
        if not self.linked and not any(table.symlink for table in (*known, *self.files.values())):
            return {}
        former: dict[int, list[TableName]] = {}
        for item in self.former.values():
            former.setdefault(item.table_id, []).append(item.name)
        found: dict[str, list[_Holder]] = {}
        heirs = {id(self._owner(table)): table for table in self.files.values()}
        for owner in {id(item): item for item in (*known, *map(self._owner, self.files.values()))}.values():
            versions = [owner, *([heirs[id(owner)]] if id(owner) in heirs else [])]
            names = {str(name): name for name in (*(one.name for one in versions), *former.get(owner.table_id, ()))}
            for name in names.values():
                found.setdefault(str(name), []).append(_Holder(owner, versions[-1].name, by_symlinks=False))
                if owner.table_id in self.linked or any(one.symlink for one in versions):
                    linked = f"{name.schema}{SYMLINK_SUFFIX}.{name.table}"
                    found.setdefault(linked, []).append(_Holder(owner, versions[-1].name, by_symlinks=True))
        return {name: holders for name, holders in found.items() if any(one.by_symlinks for one in holders)}

    def unused(self, name: TableName) -> TableName:
        """Returns the name of a new table, with a folder no earlier table used."""
        taken = {item.physical for item in (*(table.name for table in self.known.values()), *self.dropped)}
        folder, number = name, 1
        while folder.physical in taken:
            number += 1
            folder = TableName(name.schema, name.table, physical_table=f"{name.table}_{number}")
        return folder


@dataclass(frozen=True)
class StreamClaims:
    """The owner of each stream before and after the apply."""

    names: Mapping[int, str]
    ended: frozenset[int]
    """Streams that the file of their table no longer names."""
    known: tuple[KnownStream, ...]
    wanted: Mapping[str, Collection[str]]
    """The tables that name a URL in their files."""

    @classmethod
    def of(
        cls, files: Sequence[TableDefinition], names: Mapping[int, str], streams: Sequence[KnownStream]
    ) -> StreamClaims:
        """Collects the owners. A table without a file here keeps its streams. `names` are the next names of tables, by
        id.
        """
        wanted: dict[str, set[str]] = {}
        for table in files:
            for stream in table.streams:
                wanted.setdefault(stream.url, set()).add(str(table.name))
        applied_names = {str(table.name) for table in files}
        ended = {
            item.stream_id
            for item in streams
            if item.removed
            or (
                names.get(item.table_id) in applied_names
                and names[item.table_id] not in wanted.get(item.stream.url, ())
            )
        }
        return cls(names, frozenset(ended), tuple(streams), wanted)

    def taken(self, table: TableDefinition, old: TableDefinition | None) -> list[str]:
        """Returns problems of streams inside or around the prefix of another table, which keeps it.

        Tables with the very same prefix share it by their routes.
        """
        return [
            f"{place_of(table, stream)}: {stream.url} of {table.name} overlaps {other.stream.url}, which feeds another "
            f"table, {self.names.get(other.table_id)}; take it out of that file in the same run of apply to move it, "
            f"or say `was: {self.names.get(other.table_id)}` where {table.name} is that table by another name"
            for stream in table.streams
            for other in self.known
            if (old is None or other.table_id != old.table_id)
            and other.stream_id not in self.ended
            and stream.url != other.stream.url
            and overlap(stream, other.stream)
        ]

    def moves_of(self, table: TableDefinition, old: TableDefinition | None) -> Moves:
        """Returns the streams a table gets from others, and gives to others.

        A stream moves if its table ends it, and one other table alone reads its prefix from now on. It then goes on
        there: objects that the first table has read stay with it. Several tables each read the prefix from its
        beginning. A topic never moves: its spool objects lie in the folder of their table.
        """
        mine = old.table_id if old else None
        origins, targets = {}, {}
        for url, left in self._left.items():
            heir = self._heirs.get(url)
            if heir == str(table.name):
                origins[url] = Origin(self.names.get(left.table_id), left.stream_id)
            elif heir is not None and left.table_id == mine:
                targets[url] = heir
        return Moves(origins, targets)

    @cached_property
    def _left(self) -> Mapping[str, KnownStream]:
        """The first stream of each URL that its table ends, or has ended."""
        left = [item for item in self.known if item.stream_id in self.ended and item.stream.topic is None]
        return {item.stream.url: item for item in reversed(left)}

    @cached_property
    def _heirs(self) -> Mapping[str, str]:
        """The only table at a URL from now on, if it has never had a stream of its own there, by URL."""
        having: dict[str, set[str]] = {}
        staying: dict[str, set[str]] = {}
        for item in self.known:
            name = self.names.get(item.table_id, "")
            having.setdefault(item.stream.url, set()).add(name)
            if item.stream_id not in self.ended:
                staying.setdefault(item.stream.url, set()).add(name)
        alone = {
            url: next(iter(tables)) for url, tables in self.wanted.items() if len({*tables, *staying.get(url, ())}) == 1
        }
        return {url: table for url, table in alone.items() if table not in having.get(url, ())}
