"""The content of each distribution: production does not include the local stack."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from fnmatch import fnmatchcase
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
import typer.main

from prism_local.readers.known import DUCKLAKE

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
LOCAL = ROOT / "prism_local"


def read(file: Path) -> Any:
    return tomllib.loads(file.read_text())


@pytest.fixture(scope="module")
def production() -> Any:
    return read(ROOT / "pyproject.toml")


@pytest.fixture(scope="module")
def local() -> Any:
    return read(LOCAL / "pyproject.toml")


def packages(*names: str) -> Iterator[str]:
    """Yields these folders of the repository and all folders with modules below them, by dotted names."""
    for name in names:
        for folder in sorted({file.parent for file in (ROOT / name).rglob("*.py")}):
            if "build" not in folder.parts:  # what pip leaves where it made a wheel
                yield ".".join(folder.relative_to(ROOT).parts)


def found_by(find: Any, names: Iterator[str]) -> set[str]:
    """Returns the packages found by setuptools with `include` and `exclude`."""
    assert set(find) == {"include", "exclude"}, "nothing that this test knows nothing of"
    return {
        name
        for name in names
        if any(fnmatchcase(name, pattern) for pattern in find["include"])
        and not any(fnmatchcase(name, pattern) for pattern in find["exclude"])
    }


def test_the_wheel_of_prism_assets_holds_its_package_whole_and_no_other(production: Any) -> None:
    setuptools = production["tool"]["setuptools"]
    assert set(setuptools) == {"packages", "package-data"}
    everything = [folder.name for folder in ROOT.iterdir() if (folder / "__init__.py").exists()]
    assert set(everything) >= {"prism_assets", "prism_local", "prism_assets_tests", "bench"}
    assert found_by(setuptools["packages"]["find"], packages(*everything)) == set(packages("prism_assets"))
    assert set(setuptools["package-data"]) == {"prism_assets"}


def test_the_wheel_of_prism_local_holds_all_of_its_folders(local: Any) -> None:
    setuptools = local["tool"]["setuptools"]
    assert set(setuptools["packages"]) == set(packages("prism_local"))
    assert setuptools["package-dir"] == {"prism_local": "."}


@pytest.mark.parametrize("name", ["prism_assets", "prism_local"])
def test_every_folder_with_modules_is_a_package_and_typed(name: str) -> None:
    for package in packages(name):
        assert (ROOT / package.replace(".", "/") / "__init__.py").exists(), package
    assert (ROOT / name / "py.typed").exists()


def test_both_are_released_together(production: Any, local: Any) -> None:
    ours, theirs = production["project"], local["project"]
    same = ("version", "requires-python", "license", "license-files", "classifiers", "authors")
    assert [ours[field] for field in same] == [theirs[field] for field in same]
    assert production["build-system"] == local["build-system"]
    assert f"prism-assets[kafka]=={ours['version']}" in theirs["dependencies"]
    assert ours["optional-dependencies"]["local"] == [f"prism-assets-local=={ours['version']}"]
    assert (LOCAL / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()


def test_production_depends_on_nothing_that_only_the_local_stack_needs(production: Any, local: Any) -> None:
    assert not set(production["project"]["dependencies"]) & set(local["project"]["dependencies"])


def test_the_local_stack_brings_prism_local_to_the_command_line(production: Any, local: Any) -> None:
    kept = {
        "dagster_dg_cli.registry_modules": {"prism_assets": "prism_assets"},
        "sqlalchemy.plugins": {"prism_kept_connections": "prism_assets.defs.connection_pool:KeptConnections"},
    }
    assert production["project"]["entry-points"] == kept, "it would come with the wheel for production"
    ((group, entries),) = local["project"]["entry-points"].items()
    (entry,) = (EntryPoint(name, value, group) for name, value in entries.items())
    assert (entry.group, entry.name) == ("prism_assets.commands", "local")
    mounted: Any = typer.main.get_command(entry.load())
    assert set(mounted.commands) == {"up", "down", "status", "put", "reset", "demo"}


def test_every_layer_of_production_is_kept_from_importing_the_local_stack() -> None:
    layers = sorted((ROOT / "prism_assets").rglob("ruff.toml"))
    assert ROOT / "prism_assets" / "ruff.toml" in layers
    for layer in layers:
        banned = read(layer)["lint"]["flake8-tidy-imports"]["banned-api"]
        assert "prism_local" in banned, layer


def test_the_duckdb_with_extensions_is_the_one_that_tests_and_the_demo_run(production: Any) -> None:
    assert tuple(production["project"]["optional-dependencies"]["ducklake"]) == DUCKLAKE.packages


_NEWER = re.compile(
    r"\b(StrEnum|ExceptionGroup|TaskGroup|file_digest|assert_never|LiteralString|NotRequired)\b|except\*"
    r"|from (typing|datetime|enum|contextlib) import [^\n]*\b(Self|Never|Required|override|UTC|verify|chdir)\b"
)


def test_no_module_uses_names_that_the_oldest_python_lacks() -> None:
    """Python 3.10 runs in the long form of `install/` alone."""
    found = [
        f"{file.relative_to(ROOT)}: {match[0]}"
        for package in ("prism_assets", "prism_local")
        for file in (ROOT / package).rglob("*.py")
        for match in _NEWER.finditer(re.sub(r"#.*", "", file.read_text()))
    ]
    assert found == []
