"""Drafts and drift over spool objects."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

import pytest

from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.tables.drift import FieldKind, SeenField, addable
from prism_assets.drafting.draft import draft_file
from prism_assets.drafting.patch import draft_patch
from prism_assets.objectstore.config import StoreConfig
from prism_assets.objectstore.stores import Stores
from prism_assets_tests.kernels.builders import a_column, a_line, a_table
from prism_assets_tests.kernels.messages.builders import KEY, a_spool_object, a_topic_table

NOW = datetime(2018, 10, 25, tzinfo=timezone.utc)
KEYS = ("@offset", "count")


def seen(key: str) -> SeenField:
    return SeenField(table_id=1, key=key, kind=FieldKind.NUMBER, count=9, bucket="lake", object_key=KEY, line=1)


def test_a_table_is_drafted_from_a_spool_object(tmp_path: Path) -> None:
    sample = tmp_path / "sample.parquet"
    sample.write_bytes(a_spool_object(*(a_line({"count": n}) if n % 5 else None for n in range(50))))
    draft = draft_file(
        StoreConfig(local_root="/nowhere"), "log.events", str(sample), url="s3://staging/in/", folder=None, now=NOW
    )
    assert "- {name: time, type: timestamp, required: true}" in draft.text
    assert "- {name: count, type: bigint}" in draft.text


def test_columns_are_drafted_for_keys_in_messages(tmp_path: Path) -> None:
    """A key with the name of a fact is read by a path, because the bare name is the fact."""
    for bucket in ("staging", "lake"):
        (tmp_path / bucket).mkdir()
    config = StoreConfig(local_root=str(tmp_path), object_tags=False)
    lines = [a_line({"count": n, "@offset": 2.5}) for n in range(9)]
    Stores(config).put("lake", KEY, a_spool_object(*lines))
    drafted = draft_patch(config, a_topic_table(), [seen(key) for key in KEYS])
    assert [(item.column().source, item.type.keyword) for item in drafted] == [
        ('$["@offset"]', "double"),
        ("count", "bigint"),
    ]


@pytest.mark.parametrize(("table", "keys"), [(a_topic_table(), ["count"]), (a_table(), ["@offset", "count"])])
def test_a_contract_adds_no_column_that_would_read_a_fact_instead_of_the_key(
    table: TableDefinition, keys: list[str]
) -> None:
    assert [field.key for field in addable(table, [seen(key) for key in KEYS])] == keys


def test_a_table_of_objects_drafts_such_keys_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    config = StoreConfig(local_root=str(tmp_path), object_tags=False)
    drafted = draft_patch(config, a_table(a_column("n", "bigint", 2)), [seen("@offset")])
    assert [item.column().source for item in drafted] == ["@offset"]
