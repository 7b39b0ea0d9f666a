"""Wheels of the sources, and environments that hold them without a clone."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).parents[2]
URL = "https://code.example/prism/blob/v0.1.0"


def call(*words: str | Path, cwd: Path, env: Mapping[str, str], seconds: float = 600) -> str:
    """Runs a program that must succeed. Returns its output."""
    done = subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        env=dict(env),
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, (words, done.stdout[-4_000:], done.stderr[-4_000:])
    return done.stdout


def build_wheels(folder: Path, *words: str) -> Path:
    """Builds wheels into a folder, which then serves as the local index."""
    # pip reads "no isolation" from this value. The tests' own setuptools builds, because another one takes seconds.
    quick = {"PIP_NO_BUILD_ISOLATION": "0"} if "--no-kernel" in words else {}
    variables = {**os.environ, "PRISM_SOURCE_URL": URL, **quick}
    call(ROOT / "scripts" / "wheels", *words, folder, cwd=ROOT, env=variables, seconds=3_600)
    return folder


def previous_version() -> str:
    """Returns the last tag of a release, else the previous commit."""
    tag = subprocess.run(
        ["git", "describe", "--tags", "--abbrev=0", "--match", "v*", "HEAD~1"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if tag.returncode == 0:
        return tag.stdout.strip()
    return call("git", "rev-parse", "HEAD~1", cwd=ROOT, env=os.environ).strip()


def build_previous_wheels(folder: Path) -> Path:
    """Builds the wheels of the previous version by its own sources."""
    sources = folder / "sources"
    sources.mkdir(parents=True)
    archive = folder / "sources.tar"
    call("git", "archive", "-o", archive, previous_version(), cwd=ROOT, env=os.environ)
    call("tar", "-xf", archive, "-C", sources, cwd=folder, env=os.environ)
    pip = (sys.executable, "-m", "pip", "wheel", "-q", "--disable-pip-version-check", "--no-deps", "-w", folder)
    call(*pip, sources, sources / "prism_local", cwd=folder, env=os.environ)
    return folder


@dataclass(frozen=True)
class Environment:
    """A virtual environment with the wheels, and the variables of a process in it."""

    folder: Path
    variables: Mapping[str, str]

    @property
    def python(self) -> Path:
        """The interpreter."""
        return self.folder / "bin" / "python"

    def with_settings(self, settings: Mapping[str, str]) -> Environment:
        """Returns the environment with more variables."""
        return replace(self, variables={**self.variables, **settings})

    def run(self, program: str, *words: str | Path, cwd: Path, seconds: float = 600) -> str:
        """Runs a program of the environment, which must succeed. Returns its output."""
        return call(self.folder / "bin" / program, *words, cwd=cwd, env=self.variables, seconds=seconds)


def variables_of(folder: Path) -> dict[str, str]:
    """Returns the environment of a person: no settings, no path to this clone."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PRISM_", "AWS_", "PYTHON", "VIRTUAL_ENV")) or name in ("PRISM_CACHE", "AWS_CA_BUNDLE")
    }
    return {**kept, "PATH": f"{folder / 'bin'}{os.pathsep}{kept['PATH']}", "COLUMNS": "200"}


def borrow_dependencies(folder: Path, wheels: Path) -> Environment:
    """Makes an environment that holds the wheels alone, and finds their dependencies where the tests run.

    A folder that a .pth file names brings its packages, but not its own .pth files: the clone, which is installed in
    place by such files, is not found.
    """
    call(sys.executable, "-m", "venv", "--without-pip", folder, cwd=ROOT, env=os.environ)
    variables = variables_of(folder)
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", folder / "bin" / "python")
    words = ("--no-compile", "--no-index", "--no-deps")
    names = ("prism-assets", "prism-assets-local")
    call(*pip, "install", "-q", *words, "--find-links", wheels, *names, cwd=wheels, env=variables)
    (packages,) = folder.glob("lib/python3*/site-packages")
    (packages / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return Environment(folder, variables)


def install_all(folder: Path, python: Path, wheels: Path, installer: str) -> Environment:
    """Makes an environment with all wheels of a folder, and with their dependencies from the usual index.

    The installer is `pip`, or `uv`, which takes a third of its time, where this environment has it.
    """
    call(python, "-m", "venv", folder, cwd=wheels, env=os.environ)
    variables = variables_of(folder)
    inside, uv = folder / "bin" / "python", Path(sys.executable).with_name("uv")
    command: tuple[str | Path, ...] = (inside, "-m", "pip", "install", "-q", "--disable-pip-version-check")
    if installer == "uv" and uv.exists():
        command = (uv, "pip", "install", "-q", "--python", inside)
    # By files, so that pip looks for none of their names in an index.
    files = sorted(wheels.glob("*.whl"))
    call(*command, "-c", ROOT / "constraints.txt", *files, cwd=wheels, env=variables, seconds=3_600)
    return Environment(folder, variables)
