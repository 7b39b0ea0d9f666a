"""Parts of definitions as JSON, as PostgreSQL stores them and tasks carry them: read by this version or a later one."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, TypeVar

from prism_assets.domain.errors import InvariantBroken

_Part = TypeVar("_Part")


def check_known(kind: type, document: Mapping[str, Any], what: str) -> None:
    """InvariantBroken if a later version stored fields of a dataclass that this one would leave out."""
    if unknown := document.keys() - _fields(kind):
        raise InvariantBroken(
            f"{what} says {', '.join(sorted(unknown))}, which this version does not know; use the version that stored "
            "it"
        )


def read_part(kind: type[_Part], document: Mapping[str, Any], what: str) -> _Part:
    """A dataclass of plain values and tuples of them. InvariantBroken as `check_known` says."""
    check_known(kind, document, what)
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in document.items()})


@functools.cache
def _fields(kind: Any) -> frozenset[str]:
    """Asked for every column of every table, and each tick of a sensor reads them all."""
    return frozenset(field.name for field in dataclasses.fields(kind))
