"""Reads `route` of a stream in a table file."""

from __future__ import annotations

from prism_assets.domain.streams.key_patterns import pattern_problem
from prism_assets.domain.streams.routes import Route
from prism_assets.domain.streams.sources import Key, Path, parse_source
from prism_assets.domain.tables.file_keys import known_keys
from prism_assets.domain.tables.yaml_mapping import YamlMapping

MOST_VALUES = 1_000
"""Each version of a definition has the values, and each batch passes them to its workers."""


def read_route(stream: YamlMapping) -> Route | None:
    """Reads `route`: `{key: PATTERN}`, `{by: $.field, in: [...]}`, `{by: $.field, otherwise: true}`, or both."""
    if "route" not in stream.children:
        return None
    entry = stream.mapping("route")
    entry.only(known_keys("streams[].route"))
    route = Route(
        key=_key(entry),
        by=_by(entry),
        values=_values(entry),
        otherwise=entry.flag("otherwise", False),
    )
    if route == Route():
        stream.complain("route", "must say key, by or otherwise")
    elif route.by is None and "in" in entry.children:
        entry.complain("in", "needs `by`: the field that has one of these values")
    elif route.by is not None and route.otherwise is ("in" in entry.children):
        entry.complain("by", "needs one of `in` and `otherwise: true`")
    return route


def _key(entry: YamlMapping) -> str | None:
    key: str | None = entry.text("key", None)
    if key is not None and (problem := pattern_problem(key)):
        entry.complain("key", problem)
    return key


def _by(entry: YamlMapping) -> str | None:
    by: str | None = entry.text("by", None)
    if by is None:
        return None
    try:
        source = parse_source(by)
    except ValueError as error:
        entry.complain("by", str(error))
        return None
    if not isinstance(source, Key | Path):
        entry.complain("by", f"{by} must be a key or a path, such as $.kind")
        return None
    return by


def _values(entry: YamlMapping) -> tuple[str, ...]:
    values = entry.texts("in", empty="must name a value")
    if len(values) > MOST_VALUES:
        entry.complain("in", f"has {len(values)} values; {MOST_VALUES} are the most")
    entry.check_each("in", values, lambda _value: None)
    return values
