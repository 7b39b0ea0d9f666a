"""Lints and renders the chart with its defaults and with deploy/helm/prism-eks.yaml, and validates the manifests.

`scripts/deploy-check` runs this module in an environment of its own, with helm-python-sdk and kubernetes-validate.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import helm_python  # type: ignore[import-not-found]
import kubernetes_validate  # type: ignore[import-not-found]
import yaml

FOLDER = Path(__file__).parents[2] / "deploy" / "helm"
VERSIONS = ("1.30", "1.37")
"""The oldest and the newest Kubernetes that manifests are held against."""
FOREIGN = ("PodMonitor",)
"""Kinds of operators, without a schema in Kubernetes."""
WRONG: tuple[dict[str, Any], ...] = (
    {"settings": {"BUCKET": "our-lake"}},
    {"worker": {"replica": 2}},
    {"worker": {"tables": ["events"]}},
    {"sparkConnect": {"enabled": True, "master": "yarn"}},
)
"""Values that the schema of the chart refuses."""


def main() -> int:
    """Prints all problems. Returns the exit status."""
    problems = [*lint(), *accepted()]
    rendered = 0
    defaults: dict[str, Any] = {}
    eks: dict[str, Any] = yaml.safe_load((FOLDER / "prism-eks.yaml").read_text())
    with helm_python.Chart.load(str(FOLDER / "prism")) as chart:
        for values in (defaults, eks):
            for manifest in manifests(chart, values):
                problems += invalid(manifest)
                rendered += 1
    for problem in problems:
        print(f"deploy-check: {problem}")
    if not problems:
        print(f"deploy-check: chart: {rendered} manifests are valid for Kubernetes {' and '.join(VERSIONS)}")
    return 1 if problems else 0


def lint() -> Iterator[str]:
    """Yields what Helm's linter finds, beside a missing icon."""
    found = helm_python.lint(str(FOLDER / "prism"))
    yield from (str(error) for error in found["errors"])
    for message in found["messages"]:
        if message["severity"] > 1:
            yield f"{message['path']}: {message['error']}"


def accepted() -> Iterator[str]:
    """Yields wrong values that the chart renders."""
    with helm_python.Chart.load(str(FOLDER / "prism")) as chart:
        for values in WRONG:
            try:
                chart.render(values, name="lake", namespace="prism")
            except helm_python.HelmError:
                continue
            yield f"the chart renders wrong values: {values}"


def manifests(chart: Any, values: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yields the rendered manifests."""
    for name, text in chart.render(values, name="lake", namespace="prism").items():
        if name.endswith(".yaml"):
            yield from (manifest for manifest in yaml.safe_load_all(text) if manifest)


def invalid(manifest: dict[str, Any]) -> Iterator[str]:
    """Yields the faults of a manifest, with a word on where."""
    if manifest["kind"] in FOREIGN:
        return
    for version in VERSIONS:
        try:
            kubernetes_validate.validate(manifest, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            yield f"{manifest['kind']} {manifest['metadata']['name']} for Kubernetes {version}: {error.message}"


if __name__ == "__main__":
    sys.exit(main())
