"""A line of the report on Iceberg."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """What was done, ours, the peer, their ratio, and what it should be."""

    name: str
    ours: str
    peer: str
    ratio: str
    target: str
    met: bool
