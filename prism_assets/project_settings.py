"""Settings from the defs.yaml of a Dagster project. A process has one lake, and so one set of settings.

Dagster loads a component before any run or tick, in the code server and in the process of each run. Runs and ticks read
the settings later, as in every other installation.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from prism_assets.domain.errors import SettingsError

_given: dict[str, Mapping[str, Any]] = {}
"""The settings by the folder of their defs.yaml. At most one."""


def give_settings(place: str, values: Mapping[str, Any]) -> None:
    """Puts values before those of the environment. The same place may give others when it is loaded again.

    Raises SettingsError for a second lake, because its runs would write into the first one.
    """
    others = [other for other in _given if other != place]
    if others:
        raise SettingsError(f"{place} is a second lake beside {others[0]}: give each lake a code location of its own")
    _given[place] = MappingProxyType(dict(values))


def given_settings() -> Mapping[str, Any]:
    """Returns the values by the names of settings. Empty outside of projects."""
    return next(iter(_given.values()), {})
