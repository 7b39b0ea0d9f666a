"""Queries on findings for tests."""

from __future__ import annotations

from collections.abc import Iterable

from prism_assets.domain.findings import Finding


def says(found: Iterable[Finding], *kinds: str) -> list[str]:
    """The facts of findings: of some kinds, or of all."""
    return [item.says for item in found if not kinds or item.kind in kinds]
