"""The configuration of runs by hand and of backfills, with the schema that Dagster's launchpad shows.

Runs of sensors have none. Dagster refuses a wrong value before the run begins.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

from dagster import Enum, EnumValue, Field

from prism_assets.defs.keys import Stage

_REBUILD = "rebuild"


class Rebuilding(enum.Enum):
    """Whether a run rebuilds its days, and whether missing staging objects stop a rebuild or are skipped.

    Neither `yes` nor `no` is among them, because YAML reads those as other than text.
    """

    NONE = "none"
    ALL = "all"
    WITHOUT_MISSING = "without_missing"


_ABOUT = {
    Rebuilding.NONE: "repairs lost and damaged objects only",
    Rebuilding.ALL: "rows of another definition are made again from their staging objects",
    Rebuilding.WITHOUT_MISSING: "the same, and rows whose staging objects are gone stay as they are",
}
_CHOICES = {Stage.LIVE: tuple(Rebuilding), Stage.RECORDS: (Rebuilding.NONE, Rebuilding.ALL)}
"""The choices of each stage that can rebuild. Records are recomputed from their changes, as a whole table."""


def config_schema(stage: Stage) -> dict[str, Field] | None:
    """Returns the schema of a stage's runs, or None for a stage without configuration."""
    if stage not in _CHOICES:
        return None
    values = [EnumValue(choice.value, description=_ABOUT[choice]) for choice in _CHOICES[stage]]
    about = "whether to rebuild the day" if stage is Stage.LIVE else "whether to rebuild the whole table"
    kind = Enum(f"prism_rebuild_{stage.value}", values)
    return {_REBUILD: Field(kind, is_required=False, default_value=Rebuilding.NONE.value, description=about)}


def rebuilding_of(config: Mapping[str, Any] | None) -> Rebuilding:
    """Returns the choice in the configuration of a step."""
    return Rebuilding((config or {}).get(_REBUILD, Rebuilding.NONE.value))
