"""Environments of readers below the local stack's folder. Each has the packages of one reader."""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from pathlib import Path

from prism_assets.domain.errors import WrongUse
from prism_local.readers.known import Reader

_STAMP = ".packages"
_INSTALL_SECONDS = 1_800


def find_python(reader: Reader, home: Path) -> Path | None:
    """Returns the Python of a reader, or None if its environment is missing or has other packages."""
    if not reader.packages:
        return Path(sys.executable)
    folder = _folder(reader, home)
    stamp = folder / _STAMP
    is_made = stamp.exists() and stamp.read_text(encoding="utf-8") == _package_list(reader)
    return folder / "bin" / "python" if is_made else None


def install(reader: Reader, home: Path) -> None:
    """Creates a reader's environment again. Raises WrongUse with pip's message if this fails."""
    folder = _folder(reader, home)
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, with_pip=True, symlinks=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    try:
        done = subprocess.run(
            [*pip, *reader.packages],
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
            timeout=_INSTALL_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise WrongUse(f"pip did not install {reader.name} within {_INSTALL_SECONDS} s") from None
    if done.returncode != 0:
        output = (done.stderr or done.stdout).strip().splitlines()
        raise WrongUse(f"pip could not install {reader.name}: {output[-1] if output else 'it says nothing'}")
    (folder / _STAMP).write_text(_package_list(reader), encoding="utf-8")


def _folder(reader: Reader, home: Path) -> Path:
    """Returns a folder for each version of Python: stacks of two versions share the home, and use it at one time."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return home.absolute() / "readers" / f"{reader.program.removeprefix('with_')}-{version}"


def _package_list(reader: Reader) -> str:
    return "\n".join([sys.version.split()[0], *reader.packages])
