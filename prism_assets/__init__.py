"""A log lake on S3 as Dagster assets: JSON objects in, live and merged Parquet out, nothing lost or doubled."""

from typing import Any

__version__ = "0.1.0"

_COMPONENT = "PrismLake"
"""The component for Dagster projects. `dg` finds it here by the entry point `dagster_dg_cli.registry_modules`."""


def __getattr__(name: str) -> Any:
    """Imports the component when a project asks for it: commands and tasks of Spark do without Dagster."""
    if name != _COMPONENT:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from prism_assets.defs.component import PrismLake

    return PrismLake


def __dir__() -> list[str]:
    """Names the component for `dg list components`, which looks through the attributes of a module."""
    return [*globals(), _COMPONENT]
