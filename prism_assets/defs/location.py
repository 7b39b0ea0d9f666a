"""What the definitions are built from: the table files and the first day of the partitions. Opens no connection."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from dagster import get_dagster_logger

from prism_assets.defs.keys import Stage
from prism_assets.domain.errors import DefinitionError
from prism_assets.domain.limits import CheckLimits
from prism_assets.domain.tables import TableDefinition
from prism_assets.settings import LocationSettings, load
from prism_assets.stages.apply.files import parse_table_files

_PROJECT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Location:
    """The tables of one code location, as their files say; ids and versions are PostgreSQL's and not known here.

    `problems` tell of the files that are left out.
    """

    folder: Path
    first_day: date
    sensor_seconds: int
    tables: tuple[TableDefinition, ...]
    source_url: str | None = None
    problems: tuple[str, ...] = ()

    def tables_of(self, stage: Stage, zone: str | None = None) -> tuple[TableDefinition, ...]:
        """The tables, or those of one zone, that have an asset of a stage."""
        return tuple(table for table in self.tables if zone in (None, table.timezone) and _has(table, stage))

    def zones(self) -> dict[str, tuple[TableDefinition, ...]]:
        """The tables by time zone: those of one zone share their daily partitions."""
        names = sorted({table.timezone for table in self.tables})
        return {zone: tuple(table for table in self.tables if table.timezone == zone) for zone in names}

    def names(self, stage: Stage | None = None) -> tuple[str, ...]:
        """`schema.table` of all tables, or of those that have an asset of a stage, sorted."""
        tables = self.tables_of(stage) if stage else self.tables
        return tuple(sorted(str(table.name) for table in tables))

    def limits(self) -> dict[str, CheckLimits]:
        """The limits of checks, by table."""
        return {str(table.name): table.limits for table in self.tables}


def _has(table: TableDefinition, stage: Stage) -> bool:
    """Records are folded and published; logs, those of changes too, are streamed, merged and published."""
    if stage is Stage.CATALOG:
        return True
    if stage is Stage.ICEBERG:
        return table.iceberg is not None
    return (stage is Stage.RECORDS) is (table.join is not None)


def load_location() -> Location:
    """Reads the table files. A wrong one is left out and told with file, line and field: each run and each reload reads
    them anew, and one file that is just being written must not stop all tables.

    DefinitionError with PRISM_STRICT_TABLES instead.
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
    """The folder as given, else the one of that name next to dagster.yaml, else that of the project."""
    places = [Path.cwd(), *map(Path, _homes()), _PROJECT]
    candidates = [place / folder for place in places]  # an absolute folder replaces the place
    return next((path for path in candidates if path.is_dir()), candidates[0])


def _homes() -> Iterable[str]:
    return [home] if (home := os.environ.get("DAGSTER_HOME")) else []
