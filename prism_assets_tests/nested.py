"""Nested values as functions of a row's id: the columns, the JSON of a line, and the values that readers must see.

Every fifth id has null levels, others have empty ones, or values that do not fit. An id that 7 divides has all parts.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

COLUMNS = (
    '{name: account, type: "struct<id: bigint, name: string(5), plan: struct<code: string(8), since: timestamp>>"}',
    '{name: tags, type: "list<string(3)>"}',
    '{name: attrs, type: "map<string(8), struct<v: double, n: list<integer>>>"}',
    '{name: items, type: "list<struct<sku: string(8), number: integer>>"}',
)
NAMES = ("account", "tags", "attrs", "items")
_SINCE = datetime(2025, 1, 1, tzinfo=timezone.utc)

Values = dict[str, Any]


def written(number: int) -> Values:
    """Returns the nested values of a row as a service writes them."""
    match number % 5 if number % 7 else 4:
        case 0:
            return {}
        case 1:
            return {"account": {}, "tags": [], "attrs": {}, "items": []}
        case 2:
            return {"account": "no object", "tags": "no list", "attrs": {"k": None}, "items": [None, "no item"]}
        case 3:
            return {"account": {"id": number, "name": "abcdef", "plan": "free"}, "tags": ["abcd", None, number % 10]}
    at = (_SINCE + timedelta(seconds=number)).isoformat()
    return {
        "account": {"id": number, "name": "ann", "plan": {"code": f"c{number % 10}", "since": at}},
        "tags": ["a", f"{number % 10}"],
        "attrs": {"j": {"v": number / 4, "n": [number, None]}, "k": {"v": None}},
        "items": [{"sku": f"s{place}", "number": number + place} for place in range(number % 4)],
    }


def stored(number: int) -> Values:
    """Returns the values that readers must see."""
    match number % 5 if number % 7 else 4:
        case 0:
            return dict.fromkeys(NAMES)
        case 1:
            empty = {"id": None, "name": None, "plan": None}
            return {"account": empty, "tags": [], "attrs": {}, "items": []}
        case 2:
            return {"account": None, "tags": None, "attrs": {"k": None}, "items": [None, None]}
        case 3:
            account = {"id": number, "name": "abcde", "plan": None}
            return {"account": account, "tags": ["abc", None, str(number % 10)], "attrs": None, "items": None}
    found = written(number)
    found["account"]["plan"]["since"] = _SINCE + timedelta(seconds=number)
    found["attrs"]["k"]["n"] = None
    return found


def with_parts(rows: Sequence[Values]) -> list[Values]:
    """Returns lines with nested values beside their ids."""
    return [row | written(row["id"]) for row in rows]


def as_pyiceberg_shows(values: Values) -> Values:
    """Returns the values with pairs for maps. PyIceberg 0.12 reads a null list or map of structs as an empty one."""
    attrs, items = values["attrs"] or {}, values["items"] or []
    return values | {"attrs": list(attrs.items()), "items": items}


def documents(rows: Sequence[Values], owner: str, broken: int) -> bytes:
    """Returns two documents with all rows and some records that are no objects, each with its owner around them."""
    half = len(rows) // 2
    parts = (
        {"owner": {"name": owner}, "records": rows[:half]},
        {"records": [*rows[half:], *("broken" for _ in range(broken))], "owner": {"name": owner}},
    )
    return b"".join(json.dumps(part, indent=1).encode() for part in parts)
