"""Runs stages of a world in processes of their own, so that they can be killed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

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
        **_given("PRISM_SQS_ENDPOINT", settings.sqs_endpoint),
        **_given("PRISM_SQS_QUEUE_URLS", ",".join(settings.sqs_queue_urls)),
        **more,
    }


def _given(name: str, value: str | None) -> dict[str, str]:
    return {name: value} if value else {}


def start(world: World, *arguments: str, **more: str) -> subprocess.Popen[str]:
    """Starts a module of Python, `prism_assets.cli stream --now …` for one."""
    return subprocess.Popen(
        [sys.executable, "-m", *arguments],
        env=environment(world, **more),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=world.root,
    )


def finish(process: subprocess.Popen[str], seconds: float = 60) -> tuple[int, str]:
    """Waits for a process; returns its exit status and what it printed."""
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        output, _ = process.communicate()
        raise AssertionError(f"the process hangs: {output}") from None
    return process.returncode, output or ""


def run(world: World, *arguments: str, **more: str) -> tuple[int, str]:
    """Starts and waits."""
    return finish(start(world, *arguments, **more))
