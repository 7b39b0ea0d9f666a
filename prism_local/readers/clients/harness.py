"""Runs the program of one reader. Reads questions as lines of JSON, and writes each answer once it is found.

`python harness.py with_NAME.py`. It runs in environments with only one reader.
"""

import json
import os
import runpy
import sys
from typing import Any, TextIO


def answered(program: "dict[str, Any]", asked: "dict[str, Any]") -> "list[list[Any]]":
    """Returns the rows that answer one question."""
    if "answer" in program:
        return [list(row) for row in program["answer"](asked)]
    times = {name: program["TIME"].format(asked[name]) for name in ("start", "end", "early")}
    sql = asked["sql"].format(table=program["source"](asked), explode=program.get("EXPLODE", "unnest"), **times)
    return [list(row) for row in program["query"](sql)]


def reply(program: "dict[str, Any]", asked: "dict[str, Any]") -> "dict[str, object]":
    """Returns the reply to one question: rows with an optional remark, or the reason for their absence."""
    try:
        rows = answered(program, asked)
        return {"rows": rows, "remark": program["remark"](asked, rows) if "remark" in program else None}
    except NotImplementedError as error:
        return {"skipped": str(error)}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


def main() -> None:
    """Answers until the input ends."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # output of the reader itself is no answer
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
