"""Runs the program of one reader: questions come in as lines of JSON, and answers go out as such, each as it is found.

`python harness.py with_NAME.py`. It runs in environments that hold one reader and nothing else.
"""

import json
import os
import runpy
import sys
from typing import Any, TextIO


def answered(program: "dict[str, Any]", asked: "dict[str, Any]") -> "list[list[Any]]":
    """The rows that answer one question."""
    if "answer" in program:
        return [list(row) for row in program["answer"](asked)]
    times = {name: program["TIME"].format(asked[name]) for name in ("start", "end", "early")}
    sql = asked["sql"].format(table=program["source"](asked), **times)
    return [list(row) for row in program["query"](sql)]


def reply(program: "dict[str, Any]", asked: "dict[str, Any]") -> "dict[str, object]":
    """What is said of one question: rows and perhaps a remark, or why there are none."""
    try:
        rows = answered(program, asked)
        return {"rows": rows, "remark": program["remark"](asked, rows) if "remark" in program else None}
    except NotImplementedError as error:
        return {"skipped": str(error)}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


def main() -> None:
    """Answers until there are no more questions."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a reader prints is no answer
    program = runpy.run_path(sys.argv[1])
    _say(out, version=program["version"]())
    for line in sys.stdin:
        asked = json.loads(line)
        _say(out, table=asked["table"], question=asked["question"], **reply(program, asked))
    if "close" in program:
        program["close"]()


def _say(out: TextIO, **said: object) -> None:
    print(json.dumps(said, default=str), file=out, flush=True)


if __name__ == "__main__":
    main()
