"""Optimizers of Glue rewrite and delete files of Iceberg tables. Doctor finds enabled ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from pyiceberg.catalog.glue import GlueCatalog

from prism_assets.stages.doctor.run import run_doctor
from prism_assets_tests.faults.glue import GlueFault, GlueServer
from prism_assets_tests.stages.iceberg.days import NOON, published
from prism_assets_tests.stages.iceberg.test_catalogs import with_catalog
from prism_assets_tests.world import World

if TYPE_CHECKING:
    from mypy_boto3_glue.literals import TableOptimizerTypeType


@pytest.fixture
def glue() -> Iterator[GlueServer]:
    with closing(GlueServer()) as server:
        yield server
        server.clear()


@pytest.fixture
def platform(world: World, glue: GlueServer) -> World:
    """A platform with a table in Glue that is published as Iceberg and has rows."""
    platform = with_catalog(world, iceberg_catalog="glue", glue_endpoint=glue.endpoint)
    platform = replace(platform, context=replace(platform.context, settings=platform.settings))
    published(platform)
    platform.catalog(NOON)
    return platform


def switch(platform: World, kind: TableOptimizerTypeType, *, on: bool) -> None:
    """Enables or disables an optimizer, as in the console of Glue."""
    catalog = platform.context.iceberg.catalog
    assert isinstance(catalog, GlueCatalog)
    database, table = platform.context.iceberg.identifier(platform.context.choose_tables(None)[0])
    catalog.glue.update_table_optimizer(
        CatalogId="123456789012",
        DatabaseName=database,
        TableName=table,
        Type=kind,
        TableOptimizerConfiguration={"enabled": on},
    )


def test_optimizers_are_found_until_they_are_off(platform: World) -> None:
    assert run_doctor(platform.context).is_clean
    switch(platform, "compaction", on=False)
    switch(platform, "retention", on=True)
    switch(platform, "orphan_file_deletion", on=True)
    (finding,) = run_doctor(platform.context).findings
    assert (finding.invariant, finding.kind, finding.table) == ("I4", "glue_optimizers", "log.events")
    assert finding.says.endswith("_iceberg.events by itself: retention, orphan_file_deletion")
    assert "Disable" in finding.remedy
    switch(platform, "retention", on=False)
    switch(platform, "orphan_file_deletion", on=False)
    assert run_doctor(platform.context).is_clean


def test_what_glue_does_not_tell_is_not_taken_for_off(platform: World, glue: GlueServer) -> None:
    glue.faults.append(GlueFault("BatchGetTableOptimizer", "refused", times=9))
    report = run_doctor(platform.context)
    assert report.findings == ()
    (unseen,) = report.unseen
    assert "could not ask Glue for its optimizers of the Iceberg table of log.events" in str(unseen)
