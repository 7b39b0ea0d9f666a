"""Builds a platform from settings: database, store, engine, publishers and queues. Opens no connection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from prism_assets.domain.columns.column import Column
from prism_assets.domain.columns.names import OtherNames
from prism_assets.domain.erasures.rules import ErasureRule
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.tables.drafted_parts import DraftedField
from prism_assets.domain.tables.drift import SeenField
from prism_assets.engine.base import Engine
from prism_assets.kernels.requirement import check_kernel
from prism_assets.metadata.database import Database
from prism_assets.objectstore.lake import Lake
from prism_assets.objectstore.stores import Stores, stores_of
from prism_assets.publishers.glue import GluePublisher, SymlinkPublisher
from prism_assets.publishers.glue_catalog import GlueCatalog
from prism_assets.queues.sqs import SqsQueue
from prism_assets.settings import IN_PROCESS, SYMLINK_SUFFIX, Settings
from prism_assets.stages.context import StageContext
from prism_assets.stages.deadlines import Deadline
from prism_assets.unreachable import how_to_reach

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from prism_assets.engine.live import LiveEngines
    from prism_assets.publishers.iceberg.publisher import IcebergPublisher

_FAIL_FAST_SECONDS = 2.0
_LIVE_OBJECTS, _LIVE_BYTES = 64, 32 << 20
"""The largest batch of a live worker."""
_QUICK_SECONDS = 300.0
"""A child without a result for so long hangs. An object converts within a second. A silent store is given up after a
minute, and that fault must not be charged to the object.
"""


def build_context(
    settings: Settings,
    *,
    session: Callable[[], SparkSession] | None = None,
    progress: Callable[[str], None] = lambda _message: None,
    deadline: Deadline | None = None,
    database: Database | None = None,
    fail_fast_glue: bool = False,
) -> StageContext:
    """Builds the context of the stages. `session` returns the caller's Spark session on first use.

    `database` holds the caller's PostgreSQL sessions; without it the context has its own. With a deadline, PostgreSQL
    cancels statements after it, and silent stores and catalogs are given up sooner. `fail_fast_glue` does the latter
    for Glue alone. Raises WrongUse if the compiled kernel is required and missing.
    """
    check_kernel()
    fail_fast = fail_fast_glue or deadline is not None
    lake = Lake(settings.bucket, settings.prefix, settings.store)
    stores = stores_of(replace(settings.store, retry_seconds=_FAIL_FAST_SECONDS) if deadline else settings.store)
    database = database or Database(settings.database_url.get_secret_value())
    return StageContext(
        settings=settings,
        database=database.with_deadline(lambda: deadline.seconds_left) if deadline else database,
        lake=lake,
        stores=stores,
        engine=_engine(settings, lake, session),
        publisher=GluePublisher(_glue(settings, fail_fast=fail_fast), lake, stores),
        symlink_publisher=SymlinkPublisher(_glue(settings, SYMLINK_SUFFIX, fail_fast=fail_fast), lake, stores),
        make_iceberg=partial(_iceberg, settings, lake, stores),
        check_expressions=_check_table,
        draft_columns=partial(_draft_columns, settings),
        draft_fields=partial(_draft_fields, settings),
        make_erasure_rule=_make_erasure_rule,
        queues=tuple(
            SqsQueue(url, settings.sqs_endpoint, settings.region, wait_seconds=settings.sqs_wait_seconds)
            for url in settings.sqs_queue_urls
        ),
        progress=progress,
    )


def build_live_context(settings: Settings, *, progress: Callable[[str], None]) -> tuple[StageContext, LiveEngines]:
    """Builds the context of a live worker, with the engine of small objects, and all engines of the worker.

    Batches are small, so that no object waits long for the others of its batch. A call to a queue waits a second. Calls
    to Glue give up on a silent server before the leases of the worker run out.
    """
    from prism_assets.engine.child import ChildEngine
    from prism_assets.engine.live import LiveEngines

    own = settings.model_copy(
        update={
            "stream_max_objects": min(settings.stream_max_objects, _LIVE_OBJECTS),
            "stream_max_bytes": min(settings.stream_max_bytes, _LIVE_BYTES),
            "sqs_wait_seconds": max(settings.sqs_wait_seconds, 1.0),
        }
    )
    context = build_context(own, progress=progress, fail_fast_glue=True)
    spark = None if settings.spark_remote == IN_PROCESS else context.engine
    engines = LiveEngines(ChildEngine(context.lake, silent_seconds=_QUICK_SECONDS), ChildEngine(context.lake), spark)
    return replace(context, engine=engines.quick), engines


def _glue(settings: Settings, suffix: str = "", *, fail_fast: bool) -> GlueCatalog:
    return GlueCatalog(
        settings.glue_endpoint,
        settings.region,
        prefix=settings.glue_database_prefix,
        suffix=settings.glue_database_suffix + suffix,
        fail_fast=fail_fast,
    )


def _check_table(table: TableDefinition) -> Sequence[str]:
    from prism_assets.kernels.table_check import problems_of

    return problems_of(table)


def _draft_columns(settings: Settings, table: TableDefinition, fields: Sequence[SeenField]) -> Sequence[Column]:
    from prism_assets.drafting.patch import draft_patch

    return [drafted.column() for drafted in draft_patch(settings.store, table, fields, wide=True)]


def _draft_fields(settings: Settings, table: TableDefinition, fields: Sequence[SeenField]) -> Sequence[DraftedField]:
    from prism_assets.drafting.patch import draft_fields

    return draft_fields(settings.store, table, fields, wide=True)


def _make_erasure_rule(table: TableDefinition, where: str, others: OtherNames) -> ErasureRule:
    from prism_assets.kernels.expressions.predicate import make_erasure_rule

    return make_erasure_rule(table, where, others)


def _iceberg(settings: Settings, lake: Lake, stores: Stores, installation_id: str) -> IcebergPublisher:
    from prism_assets.publishers.iceberg.catalogs import iceberg_catalog
    from prism_assets.publishers.iceberg.publisher import IcebergPublisher

    return IcebergPublisher(
        iceberg_catalog(settings, stores),
        lake,
        stores,
        installation_id,
        prefix=settings.glue_database_prefix,
        suffix=settings.iceberg_database_suffix,
    )


def _engine(settings: Settings, lake: Lake, session: Callable[[], SparkSession] | None) -> Engine:
    """Returns the engine. Imports kernels only for the in-process engine, so reading commands start faster."""
    if settings.spark_remote == IN_PROCESS:
        from prism_assets.engine.inprocess import InProcessEngine

        return InProcessEngine(lake)
    from prism_assets.engine.sessions import connect
    from prism_assets.engine.spark import SparkEngine

    return SparkEngine(
        lake,
        session or (lambda: connect(settings.spark_remote, settings.spark_config)),
        task_bytes=settings.task_bytes,
        advice=lambda: how_to_reach(settings.spark_remote, "PRISM_SPARK_REMOTE"),
    )
