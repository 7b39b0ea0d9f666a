"""A row of the report on Iceberg."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """The task, our figure, the peer's, their ratio, and the target."""

    name: str
    ours: str
    peer: str
    ratio: str
    target: str
    met: bool
