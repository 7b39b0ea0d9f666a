"""The rights of docs/iam.md as data, for tests of recorded requests and for the policies of deploy/.

`python -m prism_assets_tests.rights` writes deploy/terraform/policies/rights.tf.json; a test compares the file.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCUMENT = ROOT / "docs" / "iam.md"
POLICIES = ROOT / "deploy" / "terraform" / "policies" / "rights.tf.json"
SECTIONS = ("discover", "stream", "merge", "fold", "catalog", "iceberg", "repair", "rebuild", "erase", "doctor", "gc")
"""Sections of stages whose requests a test records."""
OTHERS = ("apply", "spool", "queues", "reader")
"""Sections without a recorded stage."""


@dataclass(frozen=True)
class Right:
    """An action on a pattern of resources: `s3:GetObject` on `LAKE/*/live/*`, or `glue:GetTable` on anything."""

    action: str
    place: str


def rights_of(section: str, *, dropping: bool = False) -> set[Right]:
    """Returns the rights of a section and of the section for every role; drops of tables only with `dropping`.

    Other conditions count as met.
    """
    (text,) = re.findall(rf"^## {section}\n(.*?)(?=^## )", DOCUMENT.read_text(), re.DOTALL | re.MULTILINE)
    found = {Right("s3:GetObject", "LAKE/prism-installation.json")}
    if section not in ("discover", "queues", "reader"):
        found |= {Right("s3:ListBucket", "LAKE"), Right("s3:GetObject", "LAKE/prism-erasures/*")}
    for entry in re.findall(r"^- (.*(?:\n  .*)*)", text, re.MULTILINE):
        if dropping or not entry.startswith("dropped tables:"):
            found |= {*_in_buckets(entry), *_elsewhere(entry)}
    return found


def _in_buckets(entry: str) -> Iterator[Right]:
    """Yields all actions on all places of an entry."""
    for action in re.findall(r"`(s3:\w+)`", entry):
        for place in re.findall(r"`(LAKE/[^`]*)`|\b(LAKE|STAGING)\b(?!/)", entry):
            yield Right(action, place[0] or place[1])


def _elsewhere(entry: str) -> Iterator[Right]:
    for action in re.findall(r"`((?:glue|sqs):\w+)`", entry):
        yield Right(action, "QUEUES" if action.startswith("sqs:") else "*")


def policies_text() -> str:
    """Returns the rights of all sections as Terraform reads them: by section and place, the actions."""
    rights = {section: _by_place(rights_of(section, dropping=True)) for section in (*SECTIONS, *OTHERS)}
    return json.dumps({"locals": {"rights": rights}}, indent=2) + "\n"


def _by_place(rights: set[Right]) -> dict[str, list[str]]:
    """Returns actions by place. A listing is an action on the bucket, any other one in S3 on objects."""
    found = defaultdict(set)
    for right in rights:
        bucket, *key = right.place.split("/", 1)
        if right.action == "s3:ListBucket":
            found[bucket].add(right.action)
        elif right.action.startswith("s3:"):
            found[f"{bucket}/{key[0] if key else '*'}"].add(right.action)
        else:
            found[right.place].add(right.action)
    return {place: sorted(actions) for place, actions in sorted(found.items())}


if __name__ == "__main__":
    POLICIES.write_text(policies_text())
