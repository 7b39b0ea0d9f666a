"""Moments between the phases of a life. An ending starts at the moment before its phase, not at the birth of the lake.

Half of a life passes before its ending, the same for every ending in a phase. A worker keeps the moments of the few
lives that it played last.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sqlalchemy.exc

from prism_assets_tests.faults.glue import GlueServer
from prism_assets_tests.postgres import PostgresServer
from prism_assets_tests.world import World

LIVES_KEPT = 6


@dataclass(frozen=True)
class Moment:
    """A platform on which no process works: its database, its files and its catalog."""

    database: str
    folder: Path
    catalog: Any

    @classmethod
    def keep(cls, postgres: PostgresServer, glue: GlueServer, world: World, folder: Path) -> Moment:
        """Copies a platform. PostgreSQL copies a database without sessions only, so those of readers begin again."""
        url = world.settings.database_url.get_secret_value()
        database = sqlalchemy.make_url(url).database or ""
        _copy(world.root, folder)
        while True:
            postgres.end_sessions(url)
            with suppress(sqlalchemy.exc.OperationalError):  # a session has begun meanwhile
                postgres.copy_database(database, folder.name)
                return cls(folder.name, folder, glue.copy())

    def put_back(self, glue: GlueServer, root: Path) -> None:
        """Has the files and the catalog again. The database is a template of the next one."""
        _copy(self.folder, root)
        glue.put_back(self.catalog)


def _copy(folder: Path, copied: Path) -> None:
    """Links the objects, which nobody changes in place: their ETags name the inodes. Copies other files."""
    shutil.copytree(folder, copied, ignore=lambda path, _: ["buckets"] if Path(path) == folder else [])
    shutil.copytree(folder / "buckets", copied / "buckets", copy_function=os.link)


@dataclass
class Played:
    """A life without an ending: the hits of failpoints in each phase, and the moment before each phase.

    The first phase has no moment, and none has one in a life whose messages lie in a queue: it is one long phase.
    """

    hits: list[list[str]] = field(default_factory=list)
    moments: list[Moment | None] = field(default_factory=list)

    def place(self, point: str, hit: int) -> tuple[Moment | None, int]:
        """Returns the moment before the phase of a hit, and the number of the hit from there on."""
        for names, moment in zip(self.hits, self.moments, strict=True):
            if hit <= (count := names.count(point)):
                return moment, hit
            hit -= count
        return None, hit + sum(names.count(point) for names in self.hits)


@dataclass
class Kept:
    """The lives that a worker played last, by name and seed."""

    lives: dict[tuple[str, int], Played] = field(default_factory=dict)

    def add(self, key: tuple[str, int], played: Played, postgres: PostgresServer) -> None:
        """Keeps a life, and forgets the one that was not used for the longest time if they are too many."""
        self.lives[key] = played
        while len(self.lives) > LIVES_KEPT:
            self._forget(self.lives.pop(next(iter(self.lives))).moments, postgres)

    def find(self, key: tuple[str, int]) -> Played | None:
        """Returns a life if it is kept. It is the last one to be forgotten."""
        if found := self.lives.pop(key, None):
            self.lives[key] = found
        return found

    @staticmethod
    def _forget(moments: Sequence[Moment | None], postgres: PostgresServer) -> None:
        for moment in filter(None, moments):
            postgres.drop(moment.database)
            shutil.rmtree(moment.folder)
