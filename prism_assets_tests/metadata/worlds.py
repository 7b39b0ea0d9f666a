"""A world on a database that is emptied and used again, for packages with many short tests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from prism_assets_tests.metadata.emptying import empty
from prism_assets_tests.world import World


@contextmanager
def a_world(services: Mapping[str, str], database_url: str, root: Path, **overrides: Any) -> Iterator[World]:
    """A platform with an empty database, new buckets and new catalog databases."""
    empty(database_url)
    world = World.create(root, database_url, services["PRISM_GLUE_ENDPOINT"], **overrides)
    try:
        yield world
    finally:
        world.close()
