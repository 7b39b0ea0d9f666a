"""Reads table files, each by itself, then checks that they agree on streams and tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from prism_assets.domain.errors import DefinitionError
from prism_assets.domain.records.change_log import tables_of
from prism_assets.domain.streams.format import ReadFile
from prism_assets.domain.streams.stream import Stream
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.tables.file import parse_table_file


def parse_table_files(folder: Path) -> tuple[list[TableDefinition], list[str]]:
    """Returns the tables of all sound `*.yaml` below a folder, and every problem of the others.

    If two files contradict each other, the later one by time of writing is left out. The file of a join table yields
    two tables: its records and the log of its changes.
    """
    if not folder.is_dir():
        raise DefinitionError(
            f"{folder} is not a folder, and nothing was changed: name the folder of the table files, such as tables/, "
            "or set PRISM_TABLES_DIR"
        )
    found: list[TableDefinition] = []
    problems: list[str] = []
    files = [path for path in [*folder.rglob("*.yaml"), *folder.rglob("*.yml")] if path.is_file()]
    for path in sorted(files, key=_age):
        try:
            of_file = tables_of(parse_table_file(path.read_text(encoding="utf-8"), str(path), _beside(path)))
        except DefinitionError as error:
            problems.append(str(error))
        except UnicodeDecodeError:
            problems.append(f"{path}:1: the file is not UTF-8")
        except OSError as error:
            problems.append(f"{path}:1: the file cannot be read: {error.strerror}")
        else:
            clashes = [problem for table in of_file for problem in _clashes(table, found)]
            problems += clashes
            found += [] if clashes else of_file
    return sorted(found, key=lambda table: (table.path or "", table.name)), sorted(problems)


def _beside(path: Path) -> ReadFile:
    return lambda name: (path.parent / name).read_bytes()


def _age(path: Path) -> tuple[float, str]:
    """Orders files by the time of writing, oldest first, then by path."""
    try:
        return path.stat().st_mtime, str(path)
    except OSError:  # deleted meanwhile; the read reports it
        return 0.0, str(path)


def _clashes(table: TableDefinition, others: Sequence[TableDefinition]) -> list[str]:
    """Returns problems with two files for one table, or with overlapping streams.

    Tables that share a prefix name the same one. Their routes are compared when all files are read.
    """
    problems = []
    known = [(stream, other) for other in others for stream in other.streams]
    for number, stream in enumerate(table.streams):
        for before, owner in [*known, *((earlier, table) for earlier in table.streams[:number])]:
            is_shared = owner is not table and stream.url == before.url
            if overlap(stream, before) and not is_shared:
                problems.append(
                    f"{place_of(table, stream)}: {stream.url} of {table.name} overlaps {before.url} of {owner.name} "
                    f"({owner.path}); give the prefix to one of them, or the same url to both, with a `route` each"
                )
    same = next((other for other in others if other.name == table.name), None)
    if same is not None:
        problems.append(f"{table.path}:1: table: {table.name} is also defined in {same.path}")
    return problems


def overlap(one: Stream, other: Stream) -> bool:
    """Whether objects of one stream also belong to the other. Each stream of a topic has spool objects of its own."""
    if one.topic is not None or other.topic is not None:
        return False
    return one.url.startswith(other.url) or other.url.startswith(one.url)


def place_of(table: TableDefinition, stream: Stream) -> str:
    """Returns the position of a stream in its file."""
    return table.places.get(stream.url, f"{table.path}:1: streams")


def streams_in_lake(files: Sequence[TableDefinition], lake_url: str) -> list[str]:
    """Returns problems of streams that contain the lake's own objects."""
    return [
        f"{place_of(table, stream)}: {stream.url} overlaps the lake at {lake_url}"
        for table in files
        for stream in table.streams
        if lake_url.startswith(stream.url) or stream.url.startswith(lake_url)
    ]
