"""The files of a new project, beside this module: settings, and Dagster's instance and workspace.

`dagster.yaml` and `workspace.yaml` here are links to the files of the repository; a wheel holds their content.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from prism_assets.domain.errors import WrongUse
from prism_assets.domain.tables.file_schema import table_file_schema

TABLES = "tables"
_SCHEMA = f"{TABLES}/table-file.schema.json"
_TEMPLATES = {
    ".gitignore": "gitignore",
    "dagster.yaml": "dagster.yaml",
    "prism.toml": "prism.toml",
    "workspace.yaml": "workspace.yaml",
}


@dataclass(frozen=True, kw_only=True)
class Scaffold:
    """The files of a project, by paths below its folder."""

    folder: Path
    written: tuple[str, ...]
    kept: tuple[str, ...]
    """Files that were there before, and that nothing changed."""


def check_folder(folder: Path) -> None:
    """Raises WrongUse unless each file can be written below the folder, or is there. Writes nothing."""
    for place in (folder, folder / TABLES):
        if place.exists() and not place.is_dir():
            raise WrongUse(f"{place} is no folder: name another folder; nothing was written")
        nearest = next(path for path in (place, *place.absolute().parents) if path.is_dir())
        if not os.access(nearest, os.W_OK | os.X_OK):
            raise WrongUse(f"{nearest} is not writable: name another folder; nothing was written")
    for name in project_texts():
        if (folder / name).is_dir():
            raise WrongUse(f"{folder / name} is a folder where a file belongs: move it away; nothing was written")


def scaffold(folder: Path, texts: Mapping[str, str] | None = None) -> Scaffold:
    """Writes the missing files of a project, or other texts by path, and keeps existing ones as they are.

    Raises WrongUse as check_folder.
    """
    check_folder(folder)
    (folder / TABLES).mkdir(parents=True, exist_ok=True)
    written, kept = [], []
    for name, text in (project_texts() if texts is None else texts).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        try:
            with (folder / name).open("x", encoding="utf-8") as file:
                file.write(text)
            written.append(name)
        except FileExistsError:
            kept.append(name)
    return Scaffold(folder=folder, written=tuple(written), kept=tuple(kept))


def project_texts() -> Mapping[str, str]:
    """Returns the files of a project by their paths."""
    templates = {
        name: files(__package__).joinpath(template).read_text(encoding="utf-8") for name, template in _TEMPLATES.items()
    }
    return {**templates, _SCHEMA: json.dumps(table_file_schema(), indent=2) + "\n"}
