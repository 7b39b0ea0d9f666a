"""A world whose settings stand in the environment, as runs and sensors read them, and an instance in memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from dagster import DagsterInstance

from prism_assets_tests.world import World


@pytest.fixture
def settled(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """The world, with its settings in the environment."""
    settings = world.settings
    for name, value in {
        "DATABASE_URL": settings.database_url.get_secret_value(),
        "BUCKET": settings.bucket,
        "LOCAL_ROOT": settings.local_root,
        "GLUE_ENDPOINT": settings.glue_endpoint,
        "GLUE_DATABASE_PREFIX": settings.glue_database_prefix,
        "SPARK_REMOTE": settings.spark_remote,
        "LEASE_SECONDS": settings.lease_seconds,
    }.items():
        monkeypatch.setenv(f"PRISM_{name}", str(value))
    return world


@pytest.fixture
def instance() -> Iterator[DagsterInstance]:
    with DagsterInstance.ephemeral() as made:
        yield made
