"""Tags and links of the assets."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from dagster import AssetSpec, BetaWarning, Definitions

import prism_assets
from prism_assets.defs.assets.build import build_assets
from prism_assets.defs.keys import part_of
from prism_assets.defs.location import Location, load_location
from prism_assets.defs.resources import build_platform
from prism_assets_tests.builders import a_table
from prism_assets_tests.defs.tables import a_location
from prism_assets_tests.stages.spooled import a_topic_table

_PACKAGE = Path(str(prism_assets.__file__)).parent
_STAGES = {
    "staging": "discover/listings",
    "live": "stream/run",
    "merged": "merge/run",
    "catalog": "catalog/run",
    "iceberg": "iceberg/run",
    "table": "status",
}


def specs_of(location: Location) -> dict[str, AssetSpec]:
    definitions = Definitions(assets=build_assets(location), resources=build_platform())
    return {part_of(spec.key): spec for spec in definitions.resolve_all_asset_specs()}


def references(spec: AssetSpec) -> list[Any]:
    return list(spec.metadata["dagster/code_references"].code_references)


def test_each_asset_leads_to_its_table_file_and_to_its_stage(tmp_path: Path) -> None:
    location = a_location(tmp_path, a_table(iceberg="true"))
    specs = specs_of(location)
    assert specs.keys() == _STAGES.keys()
    for part, spec in specs.items():
        table, stage = references(spec)
        assert (table.file_path, table.line_number) == (str(tmp_path / "tables" / "000.yaml"), 1)
        assert (stage.file_path, stage.line_number) == (str(_PACKAGE / "stages" / f"{_STAGES[part]}.py"), 1)
        assert Path(table.file_path).is_file()
        assert Path(stage.file_path).is_file()


def test_with_the_address_of_the_repository_all_links_lead_there(tmp_path: Path) -> None:
    location = replace(a_location(tmp_path, a_table()), source_url="https://example.org/r/blob/main/")
    spec = specs_of(location)["live"]
    assert [item.url for item in references(spec)] == [
        "https://example.org/r/blob/main/tables/000.yaml#L1",
        "https://example.org/r/blob/main/prism_assets/stages/stream/run.py#L1",
    ]
    assert spec.metadata["table file"].value == "https://example.org/r/blob/main/tables/000.yaml#L1"


def test_the_address_of_the_repository_is_a_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a_location(tmp_path, a_table())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PRISM_SOURCE_URL", "https://example.org/r")
    location = load_location()
    assert references(specs_of(location)["merged"])[0].url == "https://example.org/r/tables/000.yaml#L1"


def test_one_tag_selects_the_row_of_a_table(tmp_path: Path) -> None:
    location = a_location(tmp_path, a_table("a.one", iceberg="true"), a_table("a.two", iceberg="true"))
    definitions = Definitions(assets=build_assets(location), resources=build_platform())
    tagged = {spec.key.to_user_string() for spec in definitions.resolve_all_asset_specs()
              if spec.tags["prism/table"] == "a.one"}  # fmt: skip
    assert tagged == {"prism/a.one", *(f"prism/a/one_{part}" for part in _STAGES if part != "table")}


def test_building_says_nothing(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", BetaWarning)
        build_assets(a_location(tmp_path, a_table()))


def test_a_topic_is_one_asset_before_the_staging_assets_of_all_tables_that_read_it(tmp_path: Path) -> None:
    files = [a_topic_table("a.one", "topic: app.events"), a_topic_table("a.two", "topic: app.events")]
    definitions = Definitions(assets=build_assets(a_location(tmp_path, *files)), resources=build_platform())
    specs = {spec.key.to_user_string(): spec for spec in definitions.resolve_all_asset_specs()}
    topic = specs["kafka/main/app.events"]
    assert (topic.group_name, topic.kinds, topic.metadata["tables"]) == ("kafka", {"kafka"}, ["a.one", "a.two"])
    for table in ("one", "two"):
        assert [dep.asset_key for dep in specs[f"prism/a/{table}_staging"].deps] == [topic.key]
