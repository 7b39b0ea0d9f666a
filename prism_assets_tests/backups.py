"""PostgreSQL set back to an older backup, while the lake and the catalogs stay as they are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import sqlalchemy
from pydantic import SecretStr

from prism_assets.platform import build_context
from prism_assets_tests.postgres import PostgresServer
from prism_assets_tests.world import World


@dataclass(frozen=True)
class Backup:
    """A copy of the database of a world."""

    world: World
    url: str

    def restore(self) -> World:
        """The same world over the copy. The caller closes it."""
        settings = self.world.settings.model_copy(update={"database_url": SecretStr(self.url)})
        return replace(self.world, settings=settings, context=build_context(settings))


@contextmanager
def a_backup(postgres: PostgresServer, world: World) -> Iterator[Backup]:
    """Copies the database of a world as it is now, and drops the copy in the end."""
    world.close()
    name = sqlalchemy.make_url(world.settings.database_url.get_secret_value()).database
    assert name is not None
    url = postgres.copy_database(name, f"{name}_backup")
    try:
        yield Backup(world, url)
    finally:
        postgres.drop_database(url)
