"""The processes of deploy/compose/compose.yaml without containers, by its commands and environment.

Hosts and ports of the file become those of local servers, paths of the image become folders of a test.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import yaml

from prism_assets_tests.rights import ROOT
from prism_local import ports, processes

COMPOSE = ROOT / "deploy" / "compose" / "compose.yaml"
IMAGE = ROOT / "deploy" / "docker" / "prism.Dockerfile"
HOME = "/opt/prism"
"""The folder of prism in the image."""


def read_compose(variables: Mapping[str, str]) -> dict[str, Any]:
    """Returns the services of the file, with `${NAME}`, `${NAME:-default}` and `${NAME:?reason}` filled in."""

    def fill(match: re.Match[str]) -> str:
        name, _, default = match[1].partition(":")
        if default.startswith("?") and name not in variables:
            raise KeyError(name)
        return variables.get(name, default.removeprefix("-"))

    text = re.sub(r"\$\{([^}]+)\}", fill, COMPOSE.read_text())
    return dict(yaml.safe_load(text)["services"])


def image_environment() -> dict[str, str]:
    """Returns the variables that the image sets for prism and Dagster."""
    return dict(re.findall(r"\b((?:PRISM|DAGSTER)_\w+)=(\S+)", IMAGE.read_text()))


@dataclass
class Machine:
    """The services of the compose file as processes of this machine."""

    folder: Path
    """Stands for `/opt/prism`."""
    places: Mapping[str, str]
    """What stands for hosts, ports and databases of the file, longer texts first."""
    env_file: Mapping[str, str]
    """The content of prism.env."""
    services: dict[str, Any]
    started: dict[str, psutil.Popen] = field(default_factory=dict)

    def mount(self, name: str) -> None:
        """Puts the files and folders of a service's volumes where its image has them."""
        for volume in self.services[name].get("volumes", ()):
            source, target, *_ = volume.split(":")
            place = Path(self._local(target))
            place.parent.mkdir(parents=True, exist_ok=True)
            if place.exists():
                continue
            if source.startswith((".", "/")):
                found = (COMPOSE.parent / source).resolve()
                place.write_text(self._local(found.read_text())) if found.is_file() else place.symlink_to(found)
            else:
                place.mkdir()

    def environment(self, name: str, **changes: str | None) -> dict[str, str]:
        """Returns the variables of a service: of the image, of prism.env, of the file, and nothing of the caller's."""
        kept = {key: os.environ[key] for key in ("HOME", "TMPDIR", "LANG", "TZ") if key in os.environ}
        said = {**image_environment(), **self.env_file, **self.services[name].get("environment", {})}
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        merged = {**kept, "PATH": path, **{key: self._local(value) for key, value in said.items()}, **changes}
        return {key: value for key, value in merged.items() if value is not None}

    def command(self, words: Sequence[str]) -> list[str]:
        """Returns a command with local addresses and paths."""
        return [self._local(word) for word in words]

    def run(self, name: str, **changes: str | None) -> subprocess.CompletedProcess[str]:
        """Runs a service to its end."""
        self.mount(name)
        return subprocess.run(
            self.command(self.services[name]["command"]),
            cwd=self.folder,
            env=self.environment(name, **changes),
            capture_output=True,
            text=True,
            timeout=300,
        )

    def start(self, name: str, **changes: str | None) -> None:
        """Starts a service that goes on."""
        self.mount(name)
        with (self.folder / f"{name}.log").open("ab") as log:
            self.started[name] = psutil.Popen(
                self.command(self.services[name]["command"]),
                cwd=self.folder,
                env=self.environment(name, **changes),
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def log(self, name: str) -> str:
        """Returns the output of a started service."""
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def await_health(self, name: str, seconds: float = 300) -> None:
        """Waits until the health check of a service in the file passes. Fails the test if the service ends first."""
        kind, *words = self.services[name]["healthcheck"]["test"]
        assert kind == "CMD"
        port = int(re.findall(r"\b\d{4,5}\b", " ".join(self.command(self.services[name]["command"])))[-1])
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self.started[name].poll() is None:
            # A health check is a process, and costs as much as the start of some services.
            if not ports.accepts(port):
                time.sleep(0.2)
                continue
            if subprocess.run(self.command(words), env=self.environment(name), capture_output=True).returncode == 0:
                return
            time.sleep(0.5)
        raise AssertionError(f"{name} is not healthy:\n{self.log(name)[-4000:]}")

    def stop(self) -> None:
        """Ends all started services with their children."""
        family = [one for process in self.started.values() for one in _family(process)]
        for process in self.started.values():
            if process.poll() is None:
                process.terminate()
        for left in processes.wait(family, 25):
            with suppress(psutil.NoSuchProcess):
                left.kill()
        for started in self.started.values():
            started.wait(30)

    def _local(self, text: str) -> str:
        for said, here in {HOME: str(self.folder), **self.places}.items():
            text = text.replace(said, here)
        return text


def _family(process: psutil.Popen) -> list[psutil.Process]:
    try:
        return [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    except psutil.NoSuchProcess:
        return []
