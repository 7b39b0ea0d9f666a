"""A service developer's path by commands alone: a sample, a draft, a check of it, and readable rows.

Three foreign logs take it in parallel, and every value in them is found again.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

from prism_assets.domain.columns.column import Column
from prism_assets.domain.columns.types import ColumnType, ListType, StructType
from prism_assets.drafting.trial import read_table
from prism_assets_tests.command.prism import Prism
from prism_assets_tests.drafting.logs import FORMS, lines_of

LINES = 400


def test_three_logs_become_tables_and_all_their_values_are_read(prism: Prism) -> None:
    world = prism.world
    for form in FORMS:
        sample = world.root / f"{form}.jsonl"
        sample.write_bytes(lines_of(form, LINES))
        file = world.settings.tables_dir / "log" / f"{form}.yaml"
        prism.ok("table", "init", f"log.{form}", "--sample", str(sample), "--url", f"s3://staging/{form}/")
        tried = prism.ok("table", "try", str(file), "--sample", str(sample), "--json").json
        assert (tried["rows"], tried["quarantined"]) == (LINES, {})
    prism.ok("table", "apply")
    for form in FORMS:
        for part in range(4):
            lines = lines_of(form, LINES).splitlines(keepends=True)[part::4]
            world.drop([], stream=form, body=b"".join(lines))
    prism.ok("run", "--until-idle")
    for form in FORMS:
        columns = read_table(world.settings.tables_dir / "log" / f"{form}.yaml").columns
        names = ", ".join(f'"{column.name}"' for column in columns)
        found = world.query(f"SELECT {names} FROM log.{form}")
        sent = [json.loads(line, parse_float=Decimal) for line in lines_of(form, LINES).splitlines()]
        assert {key for line in sent for key in line} == {column.source for column in columns}
        assert _in_order(found) == _in_order([tuple(_value(column, line) for column in columns) for line in sent])


def test_a_sample_that_ends_early_is_told_beside_the_draft(prism: Prism) -> None:
    sample = prism.world.root / "cut.gz"
    sample.write_bytes(gzip.compress(lines_of("nginx", LINES))[:-40])
    init = ("table", "init", "log.cut", "--sample", str(sample), "--url", "s3://staging/cut/")
    said = prism.ok(*init).out.splitlines()
    assert said[0].endswith(" of 1 object")
    assert said[1:-1] == ["of 1 object no line would be a row: truncated"]
    shown = prism.ok(*init, "--print", "--json").json
    assert shown["unsound"] == {"truncated": 1}


def test_a_sample_on_this_machine_needs_the_url_of_the_stream_and_nothing_is_written_without(prism: Prism) -> None:
    sample = prism.world.root / "nginx.jsonl"
    sample.write_bytes(lines_of("nginx", LINES))
    refused = prism("table", "init", "log.nginx", "--sample", str(sample))
    assert refused.status == 2
    assert refused.err == (
        f"prism: {sample} is on this machine, so say where the objects of log.nginx will arrive, such as "
        "--url s3://BUCKET/nginx/; nothing was written\n"
    )
    assert not (prism.world.settings.tables_dir / "log" / "nginx.yaml").exists()


def _in_order(rows: list[tuple[Any, ...]]) -> list[str]:
    plain = [tuple(f"{value:%FT%T.%f%z}" if isinstance(value, datetime) else value for value in row) for row in rows]
    return sorted(map(repr, plain))


def _value(column: Column, line: Mapping[str, Any]) -> Any:
    """Returns a draft column's value for a line, by the documented meaning of its type."""
    return _of_type(column.type, line.get(column.source))


def _of_type(kind: ColumnType, given: Any) -> Any:
    match kind:
        case _ if given is None:
            return None
        case StructType(fields):
            return {part.name: _of_type(part.type, given.get(part.source)) for part in fields}
        case ListType(element):
            return [_of_type(element.type, item) for item in given]
    return _VALUES[kind.keyword](given)


def _bigint(given: Any) -> int | None:
    return None if isinstance(given, str | dict) and not str(given).lstrip("-").isdigit() else int(given)


def _time(given: Any) -> datetime:
    """Counted since 1970, in seconds or milliseconds, or written out."""
    text = str(given)
    if text.replace(".", "").isdigit():
        counted = Decimal(text)
        at = datetime.fromtimestamp(0, timezone.utc) + timedelta(
            milliseconds=float(counted * (1_000 if counted < 10**11 else 1))
        )
    else:
        at = datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone(timezone.utc)
    return at


def _json(given: Any) -> str:
    return json.dumps(given, separators=(",", ":"), default=str)


def _text(given: Any) -> str:
    return given if isinstance(given, str) else _json(given)


_VALUES: Mapping[str, Callable[[Any], Any]] = {
    "bigint": _bigint,
    "double": float,
    "boolean": bool,
    "timestamp": _time,
    "string": _text,
    "json": _json,
}
