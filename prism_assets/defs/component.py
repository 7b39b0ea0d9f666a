"""The component `prism_assets.PrismLake`: a lake as a part of somebody's own Dagster project.

`dg scaffold defs prism_assets.PrismLake lake` writes its defs.yaml.
"""

# Dagster resolves the annotations of components, so this module does not postpone them.
from datetime import date
from pathlib import Path
from typing import Any

from dagster import Component, ComponentLoadContext, Definitions, Model, Resolvable, Scaffolder, ScaffoldRequest
from dagster.components.component_scaffolding import scaffold_component
from dagster.components.scaffold.scaffold import scaffold_with
from pydantic import Field

from prism_assets.defs.build import build_definitions
from prism_assets.defs.failures import shown_while_loading
from prism_assets.defs.location import load_location
from prism_assets.domain.errors import SettingsError
from prism_assets.project_settings import give_settings
from prism_assets.settings import refuse_unknown

_TABLES = "tables"
_OWN_KEYS = {"tables_dir": "tables", "first_day": "first_day"}
"""Settings with an attribute of their own."""


class PrismLakeScaffolder(Scaffolder):
    """Writes defs.yaml, and the folder for table files beside it."""

    def scaffold(self, request: ScaffoldRequest) -> None:
        """Dagster calls this for `dg scaffold defs`."""
        scaffold_component(request, {"tables": _TABLES, "first_day": date.today().isoformat(), "settings": {}})
        folder = Path(request.target_path) / _TABLES
        folder.mkdir(exist_ok=True)
        (folder / ".gitkeep").touch()


@scaffold_with(PrismLakeScaffolder)
class PrismLake(Component, Model, Resolvable):
    """A log lake on S3: each table file becomes assets with days, checks and sensors.

    The definitions merge with those of the project. Other assets name ours in `deps`, such as
    `AssetKey(["prism", "log", "events_catalog"])`.
    """

    tables: str = Field(default=_TABLES, description="folder of table files, from the folder of this defs.yaml")
    first_day: str = Field(default="2026-01-01", description="first day that Dagster shows, such as 2026-01-01")
    settings: dict[str, Any] = Field(
        default={},
        description="settings of prism by their names in prism.toml, such as bucket; they stand before the environment",
    )

    def build_defs(self, context: ComponentLoadContext) -> Definitions:
        """Returns the definitions of the lake. Opens no connection."""
        with shown_while_loading():
            folder = Path(context.path).absolute()
            if clash := _OWN_KEYS.keys() & self.settings.keys():
                name = sorted(clash)[0]
                raise SettingsError(f"{folder}: write {_OWN_KEYS[name]} beside `settings`, in place of settings.{name}")
            attributes = {"tables_dir": folder / self.tables, "first_day": self.first_day}
            refuse_unknown(f"{folder / 'defs.yaml'} has unknown settings", self.settings)
            give_settings(str(folder), {**self.settings, **attributes})
            return build_definitions(load_location())
