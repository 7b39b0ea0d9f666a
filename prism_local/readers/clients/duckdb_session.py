"""A DuckDB that runs statements: reads a line of JSON with `sql`, answers with a line with `rows` or `error`.

`python duckdb_session.py`. It runs in an environment with only DuckDB and its extensions.
"""

import json
import os
import sys
import time
from importlib.resources import files

import duckdb


def main() -> None:
    """Answers until the input ends. Each answer contains the seconds of its statement."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    connection = duckdb.connect()
    connection.execute("SET autoinstall_known_extensions = false; SET autoload_known_extensions = false")
    for name in ("ducklake", "httpfs", "postgres_scanner"):
        folder = files(f"duckdb_extension_{name}") / "extensions" / f"v{duckdb.__version__}"
        connection.execute(f"LOAD '{folder}/{name}.duckdb_extension'")
    connection.execute("SET TimeZone = 'UTC'")
    for line in sys.stdin:
        started = time.perf_counter()
        answer: dict[str, object]
        try:
            answer = {"rows": connection.execute(json.loads(line)["sql"]).fetchall()}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {str(error).splitlines()[0]}"}
        print(json.dumps({**answer, "seconds": time.perf_counter() - started}, default=str), file=out, flush=True)


if __name__ == "__main__":
    main()
