"""Objects read by an earlier path to their records are read again by it, also for columns that came with a new path."""

from __future__ import annotations

from dataclasses import replace

import pytest

from prism_assets.kernels.convert import convert_object
from prism_assets_tests.kernels.builders import TIME, Lake, a_column, a_convert_task
from prism_assets_tests.kernels.test_documents import a_document_table, wrapped


@pytest.mark.parametrize(
    ("before", "now", "source", "content"),
    [
        ("$", "$.Records[*]", "$outer.logGroup", b'{"time":"%s","logGroup":"g"}' % TIME.encode()),
        ("$.Records[*]", "$.logs[*]", "$outer.Records", wrapped({})),
    ],
    ids=["no document lay around the records", "the key was on the way to the records"],
)
def test_a_source_without_a_place_on_the_earlier_path_is_null(
    lake: Lake, before: str, now: str, source: str, content: bytes
) -> None:
    earlier = a_document_table(before)
    table = a_document_table(now, a_column("around", "string", 2, source=source, sources=(source,)))
    task = a_convert_task(7, content_length=len(content))
    lake.stores.put(task.bucket, task.key, content)
    again = replace(task, generation=1, read_definition=earlier.to_json())
    result = convert_object(again, table, lake.stores, lake.lake)
    assert (result.failure, result.lines_in, result.rows_out, result.quarantined) == (None, 1, 1, ())
