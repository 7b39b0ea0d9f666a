"""The component in somebody else's project, made and loaded by the real `dg`."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from dagster import AssetKey, DagsterInstance
from dagster._core.definitions.assets.graph.remote_asset_graph import RemoteWorkspaceAssetGraph
from dagster._core.remote_origin import InProcessCodeLocationOrigin
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import InProcessWorkspaceLoadTarget
from dagster.components.testing import create_defs_folder_sandbox

import prism_assets.project_settings
from prism_assets import PrismLake
from prism_assets.domain.errors import SettingsError
from prism_assets.project_settings import give_settings
from prism_assets.settings import LocationSettings, load
from prism_assets_tests.builders import a_table
from prism_assets_tests.defs.commands import Command, Ended, run_commands

# Dagster calls deprecated functions of its own and of pydantic.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

PROJECT = Path(__file__).resolve().parents[2]
PAGE = PROJECT / "docs" / "dagster-project.md"
CATALOG = AssetKey(["prism", "log", "events_catalog"])
_PYPROJECT = """
[project]
name = "shop"
version = "0.1.0"

[tool.dg]
directory_type = "project"

[tool.dg.project]
root_module = "shop"
"""
_DEFINITIONS = """
from pathlib import Path

from dagster import Definitions, ResourceDefinition, asset, definitions, load_from_defs_folder


@asset
def orders() -> None: ...


@definitions
def defs() -> Definitions:
    theirs = {"s3": ResourceDefinition.hardcoded_resource("ours"), "platform": ResourceDefinition.none_resource()}
    lake = load_from_defs_folder(path_within_project=Path(__file__).parent)
    return Definitions.merge(Definitions(assets=[orders], resources=theirs), lake)
"""


def a_project(root: Path) -> Path:
    """Writes the project of a shop, laid out as `create-dagster` does, with an asset and resources of its own."""
    package = root / "src" / "shop"
    (package / "defs").mkdir(parents=True)
    (root / "pyproject.toml").write_text(_PYPROJECT)
    (package / "__init__.py").touch()
    (package / "defs" / "__init__.py").touch()
    (package / "definitions.py").write_text(_DEFINITIONS)
    return package / "defs"


def dg(project: Path, commands: Sequence[str], files: Mapping[str, Mapping[str, str]]) -> list[Ended]:
    """Runs commands of dg in the project, which has none of prism's settings. All of them succeed.

    `files` are written before the command that they are named with.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PRISM_", "DAGSTER_"))}
    path = os.pathsep.join([str(project / "src"), str(PROJECT)])
    environment = {**kept, "PYTHONPATH": path, "PRISM_HOME": str(project / "none"), "NO_COLOR": "1"}
    given = [Command(["dg", *words.split()], files=files.get(words, {})) for words in commands]
    ended = run_commands(project, environment, given)
    assert [item for item in ended if item.status] == []
    return ended


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process without a lake."""
    monkeypatch.setattr(prism_assets.project_settings, "_given", {})


def test_one_command_adds_the_lake_to_a_project_and_its_definitions_merge(tmp_path: Path) -> None:
    defs = a_project(tmp_path)
    table = {str(defs / "lake" / "tables" / "events.yaml"): a_table()}
    listed, *_, shown = dg(
        tmp_path,
        ["list components", "scaffold defs prism_assets.PrismLake lake", "check yaml", "list defs --json"],
        {"check yaml": table},
    )
    assert "prism_assets.PrismLake" in listed.stdout
    found = json.loads(shown.stdout)
    keys = {item["asset_key"] for item in found["assets"]}
    assert {"orders", "prism/log/events_live", "prism/log/events_catalog"} <= keys
    assert "prism_gc" in {item["name"] for item in found["jobs"]}
    assert "new_objects" in {item["name"] for item in found["sensors"]}
    assert {"s3", "platform", "prism_platform"} <= {item["name"] for item in found["resources"]}


@pytest.mark.parametrize(
    ("attributes", "sentence"),
    [
        ({"table": "tables"}, "Extra inputs are not permitted"),
        ({"settings": {"buckt": "b"}}, "buckt: there is no such setting; did you mean bucket?"),
        ({"settings": {"first_day": "2026-01-01"}}, "write first_day beside `settings`"),
        ({"first_day": "soon"}, "PRISM_FIRST_DAY: Input should be a valid date"),
        ({"tables": "nowhere"}, "nowhere is not a folder"),
    ],
)
def test_a_wrong_attribute_is_one_sentence(fresh: None, attributes: dict[str, object], sentence: str) -> None:
    contents = {"type": "prism_assets.PrismLake", "attributes": attributes}
    with create_defs_folder_sandbox() as sandbox:
        sandbox.scaffold_component(PrismLake, "lake", defs_yaml_contents=contents)
        with pytest.raises(Exception) as caught, sandbox.build_all_defs():  # noqa: PT011
            pass
    told = [str(error) for error in _causes(caught.value)]
    assert any(sentence in text for text in told), told


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def test_a_week_of_their_code_location_depends_on_seven_days_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tables := tmp_path / "tables").mkdir()
    (tables / "events.yaml").write_text(a_table())
    monkeypatch.setenv("PRISM_TABLES_DIR", str(tables))
    (program,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    (tmp_path / "their_reports.py").write_text(program)
    for name in ("their_reports", "definitions"):
        sys.modules.pop(name, None)
    ours = PROJECT / "prism_assets" / "definitions.py"
    with both_locations({"prism_assets": ours, "reports": tmp_path / "their_reports.py"}) as graph:
        report = graph.get(AssetKey("weekly_report"))
        assert report.parent_keys == {CATALOG}
        days, weeks = graph.get(CATALOG).partitions_def, report.partitions_def
        assert days is not None
        assert weeks is not None
        mapping = report.partition_mappings[CATALOG]
        upstream = mapping.get_upstream_mapped_partitions_result_for_partitions(
            weeks.subset_with_partition_keys(["2026-11-08"]), weeks, days
        )
        found = sorted(upstream.partitions_subset.get_partition_keys())
    assert found == [f"2026-11-{day:02}" for day in range(8, 15)]


@contextmanager
def both_locations(files: dict[str, Path]) -> Iterator[RemoteWorkspaceAssetGraph]:
    """Yields the assets of a workspace of several code locations, as the web server joins them."""
    origins = [
        InProcessCodeLocationOrigin(LoadableTargetOrigin(python_file=str(path)), location_name=name)
        for name, path in files.items()
    ]
    with (
        DagsterInstance.local_temp() as instance,
        WorkspaceProcessContext(instance, InProcessWorkspaceLoadTarget(origins)) as workspace,
    ):
        yield workspace.create_request_context().asset_graph


def test_values_of_a_project_stand_before_the_environment(fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRISM_SENSOR_SECONDS", "20")
    monkeypatch.setenv("PRISM_STRICT_TABLES", "1")
    give_settings("/shop/defs/lake", {"sensor_seconds": 5, "bucket": "our-lake"})
    settings = load(LocationSettings)
    assert (settings.sensor_seconds, settings.strict_tables) == (5, True)


def test_a_process_has_one_lake(fresh: None) -> None:
    give_settings("/shop/defs/lake", {"bucket": "one"})
    give_settings("/shop/defs/lake", {"bucket": "two"})  # loaded again
    with pytest.raises(SettingsError, match="/shop/defs/other is a second lake beside /shop/defs/lake"):
        give_settings("/shop/defs/other", {"bucket": "three"})
