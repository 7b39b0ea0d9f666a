"""A child process whose conversions of some objects end it, or never end. The name of the key says which."""

from __future__ import annotations

import os
import signal
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from prism_assets.engine import child
from prism_assets.engine.child import ChildEngine
from prism_assets.kernels import registry
from prism_assets.objectstore.lake import Lake

_FOLDER = "TEST_POISONED_CHILD"


def poisoned_engine(lake: Lake, folder: Path) -> ChildEngine:
    """Returns an engine with such a child. The child leaves marks in the folder."""
    os.environ[_FOLDER] = str(folder)
    return ChildEngine(lake, command=(sys.executable, "-m", "prism_assets_tests.engine.poisoned_child"))


def convert_endlessly(folder: str, now: str) -> None:
    """Runs in a process of a test: converts with a poisoned child."""
    from prism_assets.platform import build_context
    from prism_assets.settings import load_settings
    from prism_assets.stages.stream.run import run_stream
    from prism_assets_tests.builders import utc

    context = build_context(load_settings())
    run_stream(replace(context, engine=poisoned_engine(context.lake, Path(folder))), now=utc(now))


def main() -> None:
    """Serves as the real child does."""
    kernel, folder = registry.KERNELS["convert"], Path(os.environ[_FOLDER])

    def convert(task: Any, *others: Any) -> Any:
        if "fatal" in task.key or ("once" in task.key and _is_first(folder / "once")):
            os.kill(os.getpid(), signal.SIGKILL)
        if "endless" in task.key:
            (folder / "pid.new").write_text(str(os.getpid()))
            (folder / "pid.new").rename(folder / "pid")
            threading.Event().wait()
        return kernel.run(task, *others)

    cast(dict[str, Any], registry.KERNELS)["convert"] = replace(kernel, run=convert)
    child.serve()


def _is_first(path: Path) -> bool:
    try:
        path.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


if __name__ == "__main__":
    main()
