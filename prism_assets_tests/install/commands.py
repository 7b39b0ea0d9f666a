"""Runs commands of the installed `prism` in one process, which costs their imports once, and then perhaps a script.

`python commands.py '[["table", "apply"], ["run"]]' readers.py`, by the interpreter of an environment.
"""

import json
import runpy
import sys

from prism_assets.cli import main


def call(words: list[str]) -> None:
    sys.argv = ["prism", *words]
    try:
        main()
    except SystemExit as left:
        if left.code:
            raise


if __name__ == "__main__":
    commands, scripts = json.loads(sys.argv[1]), sys.argv[2:]
    for command in commands:
        call(command)
    for script in scripts:
        runpy.run_path(script, run_name="__main__")
