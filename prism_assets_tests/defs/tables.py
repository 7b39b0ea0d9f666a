"""Folders of table files, and locations made of them."""

from __future__ import annotations

from datetime import date
from pathlib import Path

from prism_assets.defs.location import Location
from prism_assets.stages.apply.files import parse_table_files

FIRST_DAY = date(2026, 1, 1)


def a_folder(root: Path, *table_files: str) -> Path:
    """Writes table files into a folder `tables`."""
    folder = root / "tables"
    folder.mkdir(exist_ok=True)
    for number, text in enumerate(table_files):
        (folder / f"{number:03}.yaml").write_text(text)
    return folder


def a_location(root: Path, *table_files: str) -> Location:
    """What a code location with these files loads."""
    folder = a_folder(root, *table_files)
    return Location(folder, FIRST_DAY, 10, tuple(parse_table_files(folder)[0]))
