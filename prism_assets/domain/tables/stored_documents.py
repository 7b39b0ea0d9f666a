"""Reads parts of definitions from the JSON that PostgreSQL stores and tasks carry. Refuses unknown fields."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, TypeVar

from prism_assets.domain.errors import InvariantBroken

_Part = TypeVar("_Part")


def check_known(kind: type, document: Mapping[str, Any], what: str) -> None:
    """Raises InvariantBroken if the document has fields unknown to this version, because they would get lost."""
    if unknown := document.keys() - _fields(kind):
        raise InvariantBroken(
            f"{what} says {', '.join(sorted(unknown))}, unknown to this version; use the version that stored it"
        )


def read_part(kind: type[_Part], document: Mapping[str, Any], what: str) -> _Part:
    """Returns a dataclass of plain values and tuples. Raises InvariantBroken like `check_known`."""
    check_known(kind, document, what)
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in document.items()})


@functools.cache
def _fields(kind: Any) -> frozenset[str]:
    """Cached, because every sensor tick reads every column of every table."""
    return frozenset(field.name for field in dataclasses.fields(kind))
