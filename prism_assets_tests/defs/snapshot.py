"""All definitions as text, so that a review shows every changed asset, sensor, schedule, job or check.

`python -m prism_assets_tests.defs.snapshot` renews `definitions.txt` after an intended change.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SNAPSHOT = Path(__file__).with_name("definitions.txt")
PROJECT = Path(__file__).resolve().parents[2]
_CODE = "from prism_assets_tests.defs.snapshot import render; import sys; sys.stdout.write(render())"
_KINDS = "dagster/kind/"


def render() -> str:
    """The definitions of the project as this process loads them."""
    from prism_assets.definitions import defs

    return "\n".join(_lines(defs.get_repository_def())) + "\n"


def _lines(repository: Any) -> Iterator[str]:
    graph = repository.asset_graph
    for key in sorted(graph.get_all_asset_keys()):
        yield f"asset {key.to_user_string()}"
        yield from (f"  {name}: {value}" for name, value in _asset(graph.get(key), repository) if value)
    for kind, found in (("job", repository.get_all_jobs()), ("schedule", repository.schedule_defs),
                        ("sensor", repository.sensor_defs)):  # fmt: skip
        for item in sorted(found, key=lambda item: str(item.name)):
            yield f"{kind} {item.name}"
            yield from (f"  {name}: {value}" for name, value in _instigator(item) if value)


def _asset(node: Any, repository: Any) -> Iterator[tuple[str, Any]]:
    step = repository.assets_defs_by_key[node.key]
    spec = step.get_asset_spec(node.key)
    tags = {name: value for name, value in node.tags.items() if not name.startswith(_KINDS)}
    yield "after", ", ".join(sorted(key.to_user_string() for key in node.parent_keys))
    yield "step", step.op.name if step.is_executable else None
    yield "group", node.group_name
    yield "kinds", ", ".join(sorted(name.removeprefix(_KINDS) for name in node.tags if name.startswith(_KINDS)))
    yield "owners", ", ".join(node.owners)
    yield "tags", ", ".join(f"{name}={value}" for name, value in sorted(tags.items()))
    yield "partitions", node.partitions_def and _partitions(node.partitions_def)
    yield "pools", ", ".join(sorted(node.pools or ()))
    yield "backfills", node.backfill_policy
    yield "automation", spec.automation_condition
    yield "freshness", spec.freshness_policy
    yield "required", None if not step.is_executable or spec.skippable else "yes"
    yield "metadata", ", ".join(sorted(spec.metadata))
    yield "checks", ", ".join(sorted(check.name for check in node.check_keys))


def _partitions(days: Any) -> str:
    return f"daily from {days.start:%Y-%m-%d} in {days.timezone}, end offset {days.end_offset}"


def _instigator(item: Any) -> Iterator[tuple[str, Any]]:
    yield "says", (item.description or "").splitlines()[0] if item.description else None
    yield "from the start", item.default_status.value if hasattr(item, "default_status") else None
    yield "every", f"{item.minimum_interval_seconds} s" if hasattr(item, "minimum_interval_seconds") else None
    yield "at", f"{item.cron_schedule} {item.execution_timezone}" if hasattr(item, "cron_schedule") else None
    yield "runs", item.job_name if hasattr(item, "cron_schedule") else None
    yield "selects", getattr(item, "asset_selection", None)
    yield "steps", ", ".join(sorted(node.name for node in item.nodes)) if hasattr(item, "nodes") else None


def load() -> subprocess.CompletedProcess[str]:
    """Renders in a separate process, with the same settings on every machine."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PRISM_", "DAGSTER_"))}
    settings = {"PRISM_TABLES_DIR": str(PROJECT / "tables"), "PRISM_SOURCE_URL": "https://example.org/prism"}
    return subprocess.run(
        [sys.executable, "-c", _CODE],
        env={**kept, **settings, "PYTHONPATH": str(PROJECT)},
        capture_output=True,
        text=True,
    )


if __name__ == "__main__":
    done = load()
    sys.stderr.write(done.stderr)
    done.check_returncode()
    SNAPSHOT.write_text(done.stdout)
