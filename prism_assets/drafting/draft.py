"""Drafts a table file from a sample of logs, and writes it where `prism table apply` finds it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from prism_assets.domain.errors import WrongUse
from prism_assets.domain.names import NAME_RULE, RESERVED_SCHEMAS, TableName, is_name
from prism_assets.domain.streams.reasons import LINE_TOO_LONG
from prism_assets.domain.streams.stream import DocumentFormat, ParquetFormat
from prism_assets.domain.streams.survey import Survey
from prism_assets.domain.streams.text_lines import TextFormat
from prism_assets.domain.tables.draft import draft_table
from prism_assets.domain.tables.file import parse_table_file
from prism_assets.domain.text import counted
from prism_assets.drafting.around import survey_around
from prism_assets.drafting.recipes import recipe_text
from prism_assets.drafting.sample_lines import find_objects, read_sample
from prism_assets.kernels.json.survey import survey
from prism_assets.objectstore.config import StoreConfig


@dataclass(frozen=True, kw_only=True)
class Draft:
    """A drafted table file, accepted by `prism table apply`."""

    table: str
    sample: str
    """Where the sample lies."""
    text: str
    lines: int
    objects: int
    rejected: int
    unsound: Mapping[str, int]
    """Counts, by reason, of sample objects that are truncated or damaged."""
    losses: tuple[str, ...]
    """Values of the sample that the table would not keep whole."""
    path: Path | None
    """The written file, or None."""


@dataclass(frozen=True, kw_only=True)
class WrittenRecipe:
    """A table file from a recipe."""

    table: str
    recipe: str
    text: str
    path: Path | None
    """The written file, or None."""


def recipe_file(name: str, recipe: str, *, url: str | None, folder: Path | None) -> WrittenRecipe:
    """Writes the table file of a recipe to `<folder>/<schema>/<table>.yaml`. Writes nothing without a folder.

    Raises WrongUse if there is no such recipe, the file exists, or the place of arrival is unknown.
    """
    table, path = _named(name, folder)
    if url is None:
        raise WrongUse(
            f"say where the objects of {table} arrive, such as --url s3://BUCKET/{table.table}/; nothing was written"
        )
    text = recipe_text(recipe, table, url)
    _write(text, table, path)
    return WrittenRecipe(table=str(table), recipe=recipe, text=text, path=path)


def draft_file(
    config: StoreConfig, name: str, place: str, *, url: str | None, folder: Path | None, now: datetime
) -> Draft:
    """Reads the sample and writes `<folder>/<schema>/<table>.yaml`. Writes nothing without a folder.

    The stream's objects arrive below `url`, or by default in the sample's folder if that is in S3. Raises WrongUse if
    the sample is unusable, the file exists, or the place of arrival is unknown. A guessed place would silently find
    nothing.
    """
    table, path = _named(name, folder)
    sample, objects, prefix = _survey_sample(place, config)
    arrives = url or prefix
    if arrives is None:
        raise WrongUse(
            f"{place} is on this machine, so say where the objects of {table} will arrive, such as "
            f"--url s3://BUCKET/{table.table}/; nothing was written"
        )
    origin = f"{counted(objects, 'object')} of {place}" if objects > 1 else place
    drafted = draft_table(table, sample, arrives, origin, now)
    text = drafted.text
    _write(text, table, path)
    return Draft(
        table=str(table),
        sample=place,
        text=text,
        lines=sample.lines,
        objects=objects,
        rejected=sample.rejected.total(),
        unsound=sample.unsound,
        losses=drafted.losses,
        path=path,
    )


def _named(name: str, folder: Path | None) -> tuple[TableName, Path | None]:
    """Returns the table, and the path of a file that does not exist yet."""
    table = _name(name)
    path = None if folder is None else folder / table.schema / f"{table.table}.yaml"
    if path is not None and path.exists():
        raise WrongUse(f"{path} exists already; move it away, or write to another folder with --tables")
    return table, path


def _write(text: str, table: TableName, path: Path | None) -> None:
    """Checks a table file, and writes it if it has a path."""
    parse_table_file(text, str(path or f"{table}.yaml"))
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)


def _name(text: str) -> TableName:
    schema, dot, table = text.partition(".")
    if not dot or not is_name(schema) or not is_name(table):
        raise WrongUse(f"{text} is no table name: write schema.table; each part {NAME_RULE}")
    if why := RESERVED_SCHEMAS.get(schema):
        raise WrongUse(f"{text}: the schema {schema} is taken: {why}; choose another name")
    return TableName(schema, table)


def _survey_sample(place: str, config: StoreConfig) -> tuple[Survey, int, str | None]:
    sampled = find_objects(place, config)
    found = read_sample(place, sampled)
    form = found.format
    sample = survey(found.lines, is_text=isinstance(form, TextFormat))
    sample.unsound = Counter(found.unsound)
    sample.format = form if isinstance(form, DocumentFormat | ParquetFormat | TextFormat) else None
    if found.too_long:
        sample.rejected[LINE_TOO_LONG] = found.too_long
    survey_around(sample, [item.chunks for item in sampled])
    return sample, found.objects, found.prefix
