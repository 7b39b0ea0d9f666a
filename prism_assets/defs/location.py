"""The input of the definitions: table files and the first day of partitions. Opens no connection."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from pathlib import Path

from dagster import get_dagster_logger

from prism_assets.defs.keys import Stage, groups_of
from prism_assets.domain.days.limits import CheckLimits
from prism_assets.domain.errors import DefinitionError
from prism_assets.domain.tables.assets import assets_of
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.settings import LocationSettings, load
from prism_assets.stages.apply.files import parse_table_files

_PROJECT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Location:
    """The tables of one code location from their files. Ids and versions are in PostgreSQL and unknown here."""

    folder: Path
    first_day: date
    sensor_seconds: int
    tables: tuple[TableDefinition, ...]
    source_url: str | None = None
    problems: tuple[str, ...] = ()
    """One sentence for each table file left out."""

    def tables_of(self, stage: Stage, zone: str | None = None) -> tuple[TableDefinition, ...]:
        """Returns the tables with an asset of a stage, of all zones or of one."""
        of_zone = (table for table in self.tables if zone in (None, table.timezone))
        return tuple(table for table in of_zone if stage.value in assets_of(table))

    def zones(self) -> dict[str, tuple[TableDefinition, ...]]:
        """Returns the tables by time zone. Tables of one zone share daily partitions."""
        names = sorted({table.timezone for table in self.tables})
        return {zone: tuple(table for table in self.tables if table.timezone == zone) for zone in names}

    def names(self, stage: Stage | None = None) -> tuple[str, ...]:
        """Returns `schema.table` of all tables, or of those with an asset of a stage, sorted."""
        tables = self.tables_of(stage) if stage else self.tables
        return tuple(sorted(str(table.name) for table in tables))

    @cached_property
    def groups(self) -> Mapping[str, str]:
        """The group of each table's assets in the lineage."""
        return groups_of(self.names())

    def limits(self) -> dict[str, CheckLimits]:
        """Returns the limits of checks by table."""
        return {str(table.name): table.limits for table in self.tables}


def load_location() -> Location:
    """Reads the table files. Leaves out wrong files and logs their file, line and field.

    Every run and reload reads all files, and a file being written must not stop the other tables. With
    PRISM_STRICT_TABLES, raises DefinitionError instead.
    """
    settings = load(LocationSettings)
    folder = _find(settings.tables_dir)
    tables, problems = parse_table_files(folder)
    if problems and settings.strict_tables:
        raise DefinitionError("\n".join(problems))
    for problem in problems:
        get_dagster_logger("prism_assets").warning(f"a table file is left out: {problem}")
    return Location(
        folder, settings.first_day, settings.sensor_seconds, tuple(tables), settings.source_url, tuple(problems)
    )


def _find(folder: Path) -> Path:
    """Returns the tables folder: as given, next to dagster.yaml, or in the project."""
    places = [Path.cwd(), *map(Path, _homes()), _PROJECT]
    candidates = [place / folder for place in places]  # an absolute folder replaces the base
    return next((path for path in candidates if path.is_dir()), candidates[0])


def _homes() -> Iterable[str]:
    return [home] if (home := os.environ.get("DAGSTER_HOME")) else []
