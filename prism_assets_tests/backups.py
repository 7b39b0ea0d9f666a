"""PostgreSQL set back to an older backup, while the lake and the catalogs stay as they are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

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
    restored: list[World] = field(default_factory=list)

    def restore(self) -> World:
        """The world over the copy of its database."""
        settings = self.world.settings.model_copy(update={"database_url": SecretStr(self.url)})
        self.restored.append(replace(self.world, settings=settings, context=build_context(settings)))
        return self.restored[-1]


@contextmanager
def a_backup(postgres: PostgresServer, world: World) -> Iterator[Backup]:
    """Copies the database of a world as it is now, and drops the copy in the end."""
    world.close()
    source = world.settings.database_url.get_secret_value()
    postgres.end_sessions(source)
    name = sqlalchemy.make_url(source).database
    assert name is not None
    url = postgres.copy_database(name, f"{name}_backup")
    backup = Backup(world, url)
    try:
        yield backup
    finally:
        for restored in backup.restored:
            restored.close()
        postgres.drop_database(url)
