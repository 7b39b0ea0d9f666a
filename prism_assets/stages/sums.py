"""Adds reports of several parts to one."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable
from typing import Any, TypeVar

_Value = TypeVar("_Value")
_Report = TypeVar("_Report", bound="Summable")


def summed_by(add: Callable[[Any, Any], Any], default: _Value) -> _Value:
    """Returns a report field with its own addition instead of `+`."""
    field: _Value = dataclasses.field(default=default, metadata={"add": add})
    return field


class Summable:
    """A dataclass whose sum has the sum of each field."""

    def __add__(self: _Report, other: _Report) -> _Report:
        fields = dataclasses.fields(self)  # type: ignore[arg-type]  # it is a dataclass
        values = {
            field.name: field.metadata.get("add", operator.add)(getattr(self, field.name), getattr(other, field.name))
            for field in fields
        }
        return type(self)(**values)
