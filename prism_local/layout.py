"""The files of the local stack, and how they are written."""

import hashlib
import json
import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prism_local.faults import StackError

NAME_OF_ROOT_VARIABLE = "PRISM_HOME"
_OPEN = Path("/var/lib/prism_assets")


def default_root() -> Path:
    """Returns the default root: PRISM_HOME, else `.prism` here."""
    return Path(os.environ.get(NAME_OF_ROOT_VARIABLE) or ".prism")


@dataclass(frozen=True)
class Layout:
    """The paths below the root of a stack (normally `.prism`)."""

    root: Path

    @property
    def env(self) -> Path:
        """The connection settings, for the settings loader and for `set -a; . .prism/env`."""
        return self.root / "env"

    @property
    def credentials(self) -> Path:
        """The generated passwords and keys. `env` can be regenerated from them."""
        return self.root / "credentials.json"

    @property
    def state(self) -> Path:
        """Ports and processes of the stack."""
        return self.root / "state.json"

    @property
    def lock(self) -> Path:
        """The file locked by commands that change the stack."""
        return self.root / "lock"

    @property
    def data(self) -> Path:
        """Data that survives `down`: the database cluster and the buckets."""
        return self.root / "data"

    @property
    def run(self) -> Path:
        """Files of running servers. May be deleted once they are stopped."""
        return self.root / "run"

    @property
    def logs(self) -> Path:
        """One log file per server, and earlier ones."""
        return self.root / "logs"

    def log(self, service: str) -> Path:
        """Returns the log file of a service."""
        return self.logs / f"{service}.log"

    @property
    def marker(self) -> str:
        """A word on the command line of every server of this stack, and of no other process."""
        return "prism-local-" + hashlib.sha256(os.fsencode(self.root)).hexdigest()[:12]

    @property
    def open_folder(self) -> Path:
        """Copies for users other than root, outside the stack's root. `reset` deletes them.

        Only needed if root runs the stack. It holds no data, and each start can recreate it from the installation.
        """
        return _OPEN / self.marker

    @staticmethod
    def open_folders() -> list[Path]:
        """Returns these folders of all stacks. The file `home` in each names its root."""
        return sorted(_OPEN.glob("prism-local-*"))

    def make_open_folder(self) -> None:
        """Creates the folder for copies, writable for root and readable for all. Raises OSError."""
        for folder in (_OPEN, self.open_folder):
            folder.mkdir(mode=0o755, exist_ok=True)
            folder.chmod(0o755)  # independent of the umask
        write_private(self.open_folder / "home", f"{self.root}\n")

    def delete_open_folder(self) -> None:
        """Deletes this stack's copies, and the parent folder after the last stack. Raises OSError."""
        if self.open_folder.is_dir():
            shutil.rmtree(self.open_folder)
            with suppress(OSError):
                _OPEN.rmdir()

    def make_folders(self) -> None:
        """Creates the folders, private to the user. Raises StackError if this fails."""
        # PostgreSQL does not run as root, so under root another user must be able to enter.
        mode = 0o711 if os.geteuid() == 0 else 0o700
        try:
            for folder in (self.root, self.data, self.run, self.logs):
                if not folder.is_dir():
                    folder.mkdir(mode=mode, parents=True, exist_ok=True)
        except OSError as error:
            raise StackError(
                f"cannot create {error.filename}: {error.strerror}; name another folder with --root"
            ) from None


def write_private(path: Path, text: str) -> None:
    """Replaces a file atomically. Other users can never read its content."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.new")
    temporary.unlink(missing_ok=True)
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise StackError(f"cannot write {path}: {error.strerror}; make room or correct the permissions") from None


def read_json(path: Path) -> dict[str, Any]:
    """Reads a JSON object. Returns an empty one for a missing or broken file."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
