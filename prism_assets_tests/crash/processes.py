"""Runs stages of a world in separate processes, so that tests can kill them."""

from __future__ import annotations

import atexit
import itertools
import os
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from prism_assets_tests.crash.fork_server import Child, ForkServer
from prism_assets_tests.world import World


def environment(world: World, **more: str) -> dict[str, str]:
    """The settings of a world as environment variables."""
    settings = world.settings
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PRISM_")}
    return {
        **kept,
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "PRISM_DATABASE_URL": settings.database_url.get_secret_value(),
        "PRISM_BUCKET": settings.bucket,
        **_given("PRISM_LOCAL_ROOT", settings.local_root),
        **_given("PRISM_S3_ENDPOINT", settings.s3_endpoint),
        "PRISM_OBJECT_TAGS": str(settings.object_tags),
        "PRISM_GLUE_ENDPOINT": str(settings.glue_endpoint),
        "PRISM_GLUE_DATABASE_PREFIX": settings.glue_database_prefix,
        "PRISM_SPARK_REMOTE": settings.spark_remote,
        "PRISM_TABLES_DIR": str(settings.tables_dir),
        "PRISM_LEASE_SECONDS": "1",
        "PRISM_MAX_ATTEMPTS": str(settings.max_attempts),
        "PRISM_GC_MAX_FRACTION": str(settings.gc_max_fraction),
        "PRISM_QUARANTINE_DAYS": str(settings.quarantine_days),
        **_given("PRISM_SQS_ENDPOINT", settings.sqs_endpoint),
        **_given("PRISM_SQS_QUEUE_URLS", ",".join(settings.sqs_queue_urls)),
        **more,
    }


def _given(name: str, value: str | None) -> dict[str, str]:
    return {name: value} if value else {}


class Command:
    """A command of `prism` in a separate process, forked with all imports done."""

    def __init__(self, child: Child) -> None:
        self._child = child

    def is_running(self) -> bool:
        """Whether the command still runs."""
        return not self._child.ended.is_set()

    def send(self, number: int) -> None:
        """Sends a signal, unless the command has ended."""
        self._child.kill(number)

    def kill(self) -> None:
        """Kills it."""
        self._child.kill()

    def finish(self, seconds: float = 300) -> tuple[int, str]:
        """Waits for the end. Returns the exit status, negative for a signal, and the output."""
        status = self._child.wait(seconds)
        return status, self._child.output.read_text(errors="replace") if self._child.output.exists() else ""


def start(world: World, *arguments: str, **more: str) -> Command:
    """Starts a command, `stream --now …` for one."""
    work = {"arguments": list(arguments), "folder": str(world.root)}
    return start_function(world, f"{__name__}:command", work, **more)


def start_function(world: World, function: str, arguments: Mapping[str, object], **more: str) -> Command:
    """Starts `module:function` in a separate process with the settings of the world."""
    output = world.root / f"output-{next(_NUMBERS)}"
    return Command(_server().run(function, arguments, environment(world, **more), output))


def run(world: World, *arguments: str, **more: str) -> tuple[int, str]:
    """Starts and waits."""
    return start(world, *arguments, **more).finish()


_NUMBERS = itertools.count(1)


@cache
def _server() -> ForkServer:
    """One for all tests of this process."""
    server = ForkServer.spawn()
    atexit.register(server.close)
    return server


def command(arguments: list[str], folder: str) -> None:
    """Runs the command line in the forked process. Returns the exit status."""
    from prism_assets.cli import main

    os.chdir(folder)
    sys.argv = ["prism", *arguments]
    main()
