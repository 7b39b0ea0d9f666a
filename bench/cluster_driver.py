"""A driver of `scripts/bench cluster`: a process that runs a stage for each line that it reads, with its own Spark."""

from __future__ import annotations

import sys

from bench.platform import NOW
from prism_assets.platform import build_context
from prism_assets.settings import load_settings
from prism_assets.stages.merge.run import run_merge
from prism_assets.stages.stream.run import run_stream


def main() -> None:
    """Reads lines such as `stream bench.round1`. Answers each with `done` after the last commit."""
    context = build_context(load_settings())
    for line in sys.stdin:
        stage, *names = line.split()
        done = (run_stream if stage == "stream" else run_merge)(context, now=NOW, names=names)
        assert not done.errors, done.errors
        print("done", flush=True)


if __name__ == "__main__":
    main()
