"""Runs `prism` like a person, and returns the output."""

from __future__ import annotations

import json
import os
import sys
from typing import Any, NamedTuple

import pytest

from prism_assets import cli
from prism_assets_tests.world import World


class Done(NamedTuple):
    """The result of a command: exit status, standard output and standard error."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one document on standard output."""
        return json.loads(self.out)


class Prism:
    """The command line in this process, with its settings in the environment."""

    def __init__(self, world: World, patch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.world = world
        self._patch = patch
        self._capsys = capsys
        # A command that makes way for others would slow down all later tests of this process.
        patch.setattr(os, "nice", lambda increment: increment)
        patch.setenv("PRISM_HOME", str(world.root / "home"))
        patch.setenv("COLUMNS", "200")
        for name, value in environment(world).items():
            patch.setenv(name, value)

    def set(self, **settings: str | None) -> None:
        """Changes settings; None takes one away."""
        for name, value in settings.items():
            if value is None:
                self._patch.delenv(f"PRISM_{name.upper()}", raising=False)
            else:
                self._patch.setenv(f"PRISM_{name.upper()}", value)

    def __call__(self, *words: str, force: bool = True) -> Done:
        """Runs one command. An exception outside of the error tree passes through and fails the test.

        A test's clock stands still, so --now is years away some day and needs --force.
        """
        self._capsys.readouterr()
        meant = ("--force",) if force and "--now" in words else ()
        self._patch.setattr(sys, "argv", ["prism", *words, *meant])
        with pytest.raises(SystemExit) as left:
            cli.main()
        said = self._capsys.readouterr()
        return Done(int(left.value.code or 0), said.out, said.err)

    def ok(self, *words: str) -> Done:
        """Runs one command that must succeed, without a word on standard error."""
        done = self(*words)
        assert (done.status, done.err) == (0, "")
        return done


def environment(world: World) -> dict[str, str]:
    """The settings of a world as environment variables."""
    settings = world.settings
    return {
        "PRISM_DATABASE_URL": settings.database_url.get_secret_value(),
        "PRISM_BUCKET": settings.bucket,
        "PRISM_LOCAL_ROOT": str(settings.local_root),
        "PRISM_GLUE_ENDPOINT": str(settings.glue_endpoint),
        "PRISM_GLUE_DATABASE_PREFIX": settings.glue_database_prefix,
        "PRISM_SPARK_REMOTE": "in-process",
        "PRISM_TABLES_DIR": str(settings.tables_dir),
        "PRISM_LEASE_SECONDS": "2",
    }
