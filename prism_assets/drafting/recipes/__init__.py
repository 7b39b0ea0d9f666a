"""Table files for logs of known kinds. Each stands beside this module, with places for names and the URL."""

from __future__ import annotations

from importlib.resources import files

from prism_assets.domain.errors import WrongUse
from prism_assets.domain.names import TableName, must_be_one_of
from prism_assets.domain.tables.drafted_columns import quoted

_SUFFIX = ".yaml"


def recipe_names() -> list[str]:
    """Returns the names of all recipes."""
    names = (item.name for item in files(__package__).iterdir())
    return sorted(name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX))


def recipe_text(recipe: str, table: TableName, url: str) -> str:
    """Returns the table file of a recipe for objects that arrive below `url`. Raises WrongUse for an unknown name."""
    names = recipe_names()
    if recipe not in names:
        raise WrongUse(f"--recipe {must_be_one_of(recipe, names)}")
    text = files(__package__).joinpath(f"{recipe}{_SUFFIX}").read_text(encoding="utf-8")
    values = {"<schema>": quoted(table.schema), "<table>": quoted(table.table), "<url>": quoted(url)}
    for place, value in values.items():
        text = text.replace(place, value)
    return text
