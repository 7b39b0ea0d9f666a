"""Writes table files for the tables of an installation of the published design."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from prism_assets.domain.errors import DefinitionError, WrongUse
from prism_assets.domain.tables.adopted import draft_adopted
from prism_assets.domain.tables.file import parse_table_file
from prism_assets.stages.adopt.audit import Installation


@dataclass(frozen=True, kw_only=True)
class WrittenFile:
    """A written table file, with notes for a person."""

    table: str
    path: str
    notes: tuple[str, ...]


def write_tables(
    old: Installation, folder: Path, names: Collection[str] | None = None, since: date | None = None
) -> list[WrittenFile]:
    """Writes `{folder}/{schema}/{table}.yaml` for the named tables, or all. Raises WrongUse if one exists.

    Files are parsed as apply parses them. Their problems are among the notes.
    """
    drafts = [draft_adopted(table, since) for table in old.load(names)]
    paths = {str(draft.name): folder / draft.name.schema / f"{draft.name.table}.yaml" for draft in drafts}
    if existing := sorted(str(path) for path in paths.values() if path.exists()):
        raise WrongUse(f"{', '.join(existing)} exists, and nothing was written: name another folder")
    written = []
    for draft in drafts:
        path = paths[str(draft.name)]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(draft.text, encoding="utf-8")
        notes = (*draft.notes, *_problems(draft.text, str(path)))
        written.append(WrittenFile(table=str(draft.name), path=str(path), notes=notes))
    return written


def _problems(text: str, path: str) -> tuple[str, ...]:
    try:
        parse_table_file(text, path)
    except DefinitionError as error:
        return tuple(str(error).splitlines())
    return ()
