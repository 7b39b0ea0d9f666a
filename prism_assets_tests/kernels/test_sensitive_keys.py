"""Quarantined lines of streams that read a sensitive column from other keys than their table."""

from __future__ import annotations

import json
from typing import Any

import pytest

from prism_assets.domain.streams.stream import Stream, StreamColumn
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.tables.options import Rejection
from prism_assets_tests.kernels.builders import TIME, Lake, a_column, an_object
from prism_assets_tests.kernels.test_programs import CANARY, a_program

NEGATIVE = Rejection(when="n < 0", reason="negative")
OBJECT = {"bucket": "staging", "key_prefix": "in/"}


def a_stream(*columns: StreamColumn, **more: Any) -> Stream:
    """Returns the stream of the converted object, or another."""
    return Stream(**{"name": "app", **OBJECT, "columns": columns, **more})


def a_table(*streams: Stream, email: Any = None, **more: Any) -> TableDefinition:
    email = email or a_column("email", "string", 0, sensitive=True)
    return a_program(a_column("n", "bigint", 2), unstored=(email,), streams=streams, reject=(NEGATIVE,), **more)


FROM_CONTACT = StreamColumn(name="email", source="contact")
OTHER = {"name": "web", "key_prefix": "web/"}


@pytest.mark.parametrize(
    "table",
    [
        pytest.param(a_table(a_stream(FROM_CONTACT)), id="the key of the table, in a stream that reads another"),
        pytest.param(a_table(a_stream(), a_stream(FROM_CONTACT, **OTHER)), id="that of another stream"),
        pytest.param(
            a_table(
                a_stream(StreamColumn(name="email", source="mail")),
                a_stream(StreamColumn(name="email", source="", sources=("/^cont/", "$.email.text")), **OTHER),
            ),
            id="that of another stream, by a pattern",
        ),
        pytest.param(
            a_table(a_stream(StreamColumn(name="email", source="", value="'none'")), a_stream(FROM_CONTACT, **OTHER)),
            id="that of the table, where this stream computes the column",
        ),
    ],
)
def test_no_key_that_any_stream_reads_a_sensitive_column_from_stays_in_lines_that_are_set_aside(
    lake: Lake, table: TableDefinition
) -> None:
    (record,) = lake.both(an_object({"n": -1, "email": CANARY, "contact": CANARY, "seen": "yes"}), table).quarantined
    assert json.loads(record["text"]) == {"time": TIME, "n": -1, "email": None, "contact": None, "seen": "yes"}


def test_a_key_that_an_open_column_of_the_stream_reads_is_kept(lake: Lake) -> None:
    state = a_column("state", "string", 3, source="email")
    email = a_column("email", "string", 0, sensitive=True, source="mail")
    table = a_program(
        a_column("n", "bigint", 2),
        state,
        unstored=(email,),
        streams=(a_stream(), a_stream(StreamColumn(name="email", source="email"), **OTHER)),
        reject=(NEGATIVE,),
    )
    (record,) = lake.both(an_object({"n": -1, "email": "open", "mail": CANARY}), table).quarantined
    assert json.loads(record["text"]) == {"time": TIME, "n": -1, "email": "open", "mail": None}
