"""Dagster resources. Their configuration contains no address and no secret: runs and ticks read settings when they
start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from dagster import ConfigurableResource
from dagster_aws.s3 import S3Resource
from dagster_pyspark import LazyPySparkResource
from pydantic import Field

from prism_assets.defs.location import Location
from prism_assets.domain.errors import TerminalError
from prism_assets.domain.installation import Installation
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.engine.sessions import master_setting, open_session
from prism_assets.kept import Kept
from prism_assets.metadata import installation
from prism_assets.metadata.database import Database
from prism_assets.metadata.intake import streams
from prism_assets.metadata.intake.streams import KnownStream
from prism_assets.metadata.run_locks import run_lock
from prism_assets.metadata.tables import tables
from prism_assets.platform import build_context
from prism_assets.settings import Settings, load_settings
from prism_assets.stages.apply.plan import plan_apply
from prism_assets.stages.apply.run import apply_sound
from prism_assets.stages.context import StageContext
from prism_assets.stages.deadlines import Deadline

Log = Callable[[str], None]
PLATFORM = "prism_platform"
"""The key of the platform among the resources of a code location."""


class SparkResource(LazyPySparkResource):
    """A Spark session on PRISM_SPARK_REMOTE with PRISM_SPARK_CONFIG, created on first use."""

    spark_config: dict[str, Any] = Field(default={}, description="further settings of Spark")
    """Further settings of Spark."""

    @property
    def spark_session(self) -> Any:
        """The session of this process: a Spark Connect client for `sc://…`, otherwise a driver in this process."""
        settings = load_settings()
        chosen = {**settings.spark_config, **self.spark_config}

        def make(address: str) -> Any:
            config = {"spark.app.name": "prism_assets", **chosen, **master_setting(address)}
            return LazyPySparkResource(spark_config=config).spark_session

        return open_session(settings.spark_remote, make, chosen)


class LakeS3Resource(S3Resource):
    """Dagster's S3 client, at PRISM_S3_ENDPOINT if set."""

    def get_client(self) -> Any:
        """Returns a boto3 client with credentials from the environment."""
        settings = load_settings()
        place = {
            "endpoint_url": self.endpoint_url or settings.s3_endpoint,
            "region_name": self.region_name or settings.region,
        }
        return S3Resource(**{**self.model_dump(), **place}).get_client()


class PlatformResource(ConfigurableResource[StageContext]):
    """Creates the context of the stages from the settings."""

    pyspark: SparkResource

    def settings(self) -> Settings:
        """Returns all settings. Raises SettingsError with every missing or wrong one."""
        return load_settings()

    @contextmanager
    def open(
        self, location: Location, info: Log, warn: Log, run_id: str | None = None, deadline: Deadline | None = None
    ) -> Iterator[StageContext]:
        """Opens a context for one step or tick, with current table files and this process's database sessions.

        Locks the run's id meanwhile, so that others can see whether its process is alive. Ticks have a deadline.
        """
        settings = self.settings()
        url = settings.database_url.get_secret_value()
        context = build_context(
            settings,
            session=lambda: self.pyspark.spark_session,
            progress=info,
            deadline=deadline,
            database=DATABASES.get(url, lambda: Database(url)),
        )
        with run_lock(context.database, run_id) if run_id else nullcontext():
            _bring_in_force(context, location, info, warn)
            yield context


DATABASES: Kept[str, Database] = Kept(Database.dispose)
"""This process's databases by address. A code server opens a context per tick and reuses a few sessions."""


def _bring_in_force(context: StageContext, location: Location, info: Log, warn: Log) -> None:
    """Applies the table files, as `prism table apply` does, if the database differs from this process's files.

    Reads the files again first, because another process may have applied newer ones, and these must not be undone.
    Wrong files become warnings and the current definitions stay: one table must not stop the others.
    """
    if _is_in_force(context, location):
        problems = location.problems
    else:
        plan = apply_sound(context, location.folder, datetime.now(timezone.utc))
        problems = plan.problems
        for line in plan.lines:
            info(f"tables: {line}")
    for problem in problems:
        warn(f"a table file is not applied: {problem}")


@dataclass(frozen=True)
class _InForce:
    """Table files, and the database content that last matched them."""

    location: Location
    known: Sequence[TableDefinition]
    streams: Sequence[KnownStream]
    lake: Installation


_last_in_force: _InForce | None = None
"""The last match in this process. Ticks ask every few seconds, and comparing a hundred tables takes half a tick."""


def _is_in_force(context: StageContext, location: Location) -> bool:
    global _last_in_force
    try:
        with context.database.begin() as connection:
            definitions, known_streams = tables.load_definitions(connection), streams.load_streams(connection)
            lake = installation.load(connection)
    except TerminalError:
        return False  # no tables yet; applying reports any other cause
    if lake is None or not lake.marked:
        return False
    seen = _InForce(location, definitions, known_streams, lake)
    if seen != _last_in_force:
        plan = plan_apply(location.tables, definitions, known_streams)
        if plan.lines or plan.problems:
            return False
        _last_in_force = seen
    return True


def build_platform() -> dict[str, Any]:
    """Returns the one resource that assets, jobs and sensors need, under a name no other project uses."""
    return {PLATFORM: PlatformResource(pyspark=SparkResource())}


def build_resources() -> dict[str, Any]:
    """Returns the resources of prism's own code location that assets of other people may use, too."""
    return {"pyspark": SparkResource(), "s3": LakeS3Resource()}
