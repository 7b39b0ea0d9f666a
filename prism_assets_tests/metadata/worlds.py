"""A world on a reused, emptied database, for packages with many short tests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

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


@pytest.fixture
def world(services: Mapping[str, str], database_url: str, tmp_path: Path) -> Iterator[World]:
    """A platform on the database of the session. A conftest that imports it offers it to its package."""
    with a_world(services, database_url, tmp_path) as made:
        yield made
