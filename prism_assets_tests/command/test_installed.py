"""Commands added to `prism` by other packages through entry points; `prism local` is one of them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
import typer
import typer.main

from prism_assets.cli.installed import mount_installed
from prism_assets.domain.errors import TerminalError, WrongUse

ROOT = Path(__file__).parents[2]
GREET = """
import typer
app = typer.Typer()
@app.command()
def hello(name: str) -> None:
    print(f"hello {name}")
@app.command()
def bye() -> None:
    print("bye")
"""
NO_LOCAL = "`prism local` is not installed: install prism-assets-local, or run scripts/bootstrap in a clone"


def install(folder: Path, source: str) -> None:
    """Installs a package into a folder like pip: a module, and the entry point of its command `greet`."""
    (folder / "greetings.py").write_text(source)
    metadata = folder / "greetings-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: greetings\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[prism_assets.commands]\ngreet = greetings:app\n")


def run(code: str, *words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs Python in a separate process that also finds the packages of a folder, without settings of any lake."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PRISM_")}
    return subprocess.run(
        [sys.executable, "-c", code, *words],
        env={**kept, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)]), "COLUMNS": "100"},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


PRISM = "from prism_assets.cli import main; main()"
PRISM_ALONE = "from prism_assets import cli; cli._COMMANDS = 'a.group.without.entries'; cli.main()"


def test_a_command_that_another_package_brings_is_mounted_under_its_name(tmp_path: Path) -> None:
    install(tmp_path, GREET)
    done = run(PRISM, "greet", "hello", "world", folder=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "hello world\n", "")


def test_one_that_does_not_load_says_so_and_takes_no_other_along(tmp_path: Path) -> None:
    install(tmp_path, "import what_is_not_there\n")
    shown = run(PRISM, "--help", folder=tmp_path)
    assert shown.returncode == 0
    assert " status " in shown.stdout
    done = run(PRISM, "greet", "hello", "--name=world", folder=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "prism: `prism greet` does not load (No module named 'what_is_not_there'): install greetings again\n"
    )


def test_prism_local_says_how_to_install_it_where_it_is_not(tmp_path: Path) -> None:
    done = run(PRISM_ALONE, "local", "up", "--json", folder=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"prism: {NO_LOCAL}\n")


@pytest.fixture
def alone() -> Any:
    """A command line without commands of other packages."""
    group = typer.Typer()
    group.command("status")(lambda: None)
    mount_installed(group, [])
    return typer.main.get_command(group)


@pytest.mark.parametrize("words", [[], ["up", "--root", "x"], ["--help"], ["reset", "-y"], ["explode", "--", "all"]])
def test_whatever_is_asked_of_it(alone: Any, words: list[str]) -> None:
    with pytest.raises(WrongUse, match=re.escape(NO_LOCAL)):
        alone.main(["local", *words], standalone_mode=False)


def test_help_does_not_list_it(alone: Any, capsys: pytest.CaptureFixture[str]) -> None:
    alone.main(["--help"], standalone_mode=False)
    said = capsys.readouterr().out
    assert " status " in said
    assert " local " not in said


def test_no_package_takes_a_command_of_prism_away(capsys: pytest.CaptureFixture[str]) -> None:
    group = typer.Typer()

    @group.command()
    def taken() -> None:
        print("ours")

    mount_installed(group, [EntryPoint("taken", "os:nothing_of_this_name", "prism_assets.commands")])
    with_taken: Any = typer.main.get_command(group)
    with_taken.main(["taken"], standalone_mode=False)
    shown = capsys.readouterr()
    assert (shown.out, "os brings a command `taken`" in shown.err) == ("ours\n", True)


def test_an_entry_that_names_nothing_does_not_load_either() -> None:
    group = typer.Typer()
    mount_installed(group, [EntryPoint("odd", "os:nothing_of_this_name", "prism_assets.commands")])
    with_odd: Any = typer.main.get_command(group)
    with pytest.raises(TerminalError, match=r"`prism odd` does not load .*: install os again"):
        with_odd.main(["odd"], standalone_mode=False)
