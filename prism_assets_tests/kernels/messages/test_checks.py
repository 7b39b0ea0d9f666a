"""`prism table apply` knows that facts about messages fill columns, where no format has such a field."""

from __future__ import annotations

from dataclasses import replace

from prism_assets.domain.streams.text_lines import CsvFormat
from prism_assets.kernels.protobuf.check import problems_of_messages
from prism_assets.kernels.text_lines.check import problems_of_text
from prism_assets_tests.kernels.builders import a_column
from prism_assets_tests.kernels.messages.builders import a_topic_table
from prism_assets_tests.kernels.protoc import a_format

COLUMNS = (
    a_column("offset", "bigint", 2, source="@offset"),
    a_column("trace", "string", 3, source="@header.trace"),
    a_column("owner", "string", 4, sources=("nothing", "@key")),
)
CSV, PAGE = CsvFormat(columns=("time",)), a_format("page.proto", "shop.PageView")


def test_facts_fill_columns_of_a_topic() -> None:
    assert problems_of_text(a_topic_table(*COLUMNS, form=CSV)) == []
    assert problems_of_messages(a_topic_table(*COLUMNS, form=PAGE)) == []


def test_they_fill_none_of_an_object() -> None:
    table = a_topic_table(*COLUMNS, form=CSV)
    table = replace(table, streams=(replace(table.streams[0], topic=None),))
    assert [problem.partition("columns: ")[2].rpartition(", ")[0] for problem in problems_of_text(table)] == [
        "offset reads @offset",
        "trace reads @header.trace",
        "owner reads nothing, @key",
    ]
