"""Objects with a renamed column have both names, only one of them as a column, whatever writes them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from prism_assets.domain.columns.transitions import ColumnRename, RenameState
from prism_assets.domain.files.data_file import DataFile, SmallObject
from prism_assets.domain.files.fingerprints import combine
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.work.repair import RepairTask
from prism_assets.domain.work.write import WriteTask
from prism_assets.kernels.expressions.predicate import make_erasure_rule
from prism_assets.kernels.field_ids import COPY_IDS, field_id
from prism_assets.kernels.fingerprint import fingerprint_of
from prism_assets.kernels.repair import repair_object
from prism_assets.kernels.write import write_object
from prism_assets_tests.kernels.builders import Lake, a_column, a_convert_task, a_table, an_object

RENAME = ColumnRename(former="v", state=RenameState.REWRITING, version=2, since=2)
BEFORE = a_table(a_column("v", "string", 2), a_column("n", "bigint", 3))
BEHIND = a_table(a_column("w", "string", 2, source="v", rename=RENAME), a_column("n", "bigint", 3))
ENDED = a_table(a_column("w", "string", 2, source="v"), a_column("n", "bigint", 3))
LINES = [{"n": number, "v": f"v{number % 7}"} for number in range(40)]
NAMES = {
    "before": {"time": 1, "v": 2, "n": 3},
    "behind": {"time": 1, "w": 2, "n": 3, "v": COPY_IDS[2]},
    "ended": {"time": 1, "w": 2, "n": 3},
}


def converted(lake: Lake, table: TableDefinition, number: int) -> SmallObject:
    (small,) = lake.convert(an_object(*LINES), table, staging_object_id=number, metric_columns=(2, 3)).result.objects
    return small


def held(lake: Lake, key: str) -> tuple[dict[str, int], dict[str, list[object]]]:
    """Returns the content of an object: names with ids, and values by name."""
    table = lake.table_at(key)
    return {field.name: field_id(field) for field in table.schema}, table.to_pydict()


def test_a_converted_object_has_both_names_and_counts_as_one_of_before(lake: Lake) -> None:
    before, behind = converted(lake, BEFORE, 1), converted(lake, BEHIND, 2)
    names, values = held(lake, behind.key)
    assert names == NAMES["behind"]
    assert values["w"] == values["v"] == [line["v"] for line in LINES]
    assert (behind.fingerprint, behind.metrics) == (before.fingerprint, before.metrics)
    assert fingerprint_of(lake.table_at(behind.key)) == before.fingerprint


@pytest.mark.parametrize(
    ("table", "said"), [(BEFORE, "before"), (BEHIND, "behind"), (ENDED, "ended")], ids=["before", "behind", "ended"]
)
def test_a_merge_of_all_kinds_has_the_names_of_its_definition(lake: Lake, table: TableDefinition, said: str) -> None:
    small = [converted(lake, one, number) for number, one in enumerate((BEFORE, BEHIND, ENDED), start=1)]
    merged = lake.merge(small[:2], BEHIND, "p/merged/first.parquet").written
    assert merged is not None
    written = lake.merge([merged, small[2]], table, metric_columns=(2, 3)).written
    assert written is not None
    names, values = held(lake, written.key)
    assert names == NAMES[said]
    assert written.fingerprint == combine(item.fingerprint for item in small)
    assert [item.column_id for item in written.metrics] == [2, 3]
    assert all(len(set(values[name])) == 7 and None not in values[name] for name in names.keys() & {"v", "w"})


@pytest.mark.parametrize("name", ["w", "v"], ids=["the column", "its copy"])
def test_no_object_is_written_with_two_columns_of_one_name(lake: Lake, name: str) -> None:
    dropped = a_table(a_column("u", "string", 2, source="v"), a_column(name, "string", 9))
    failure = lake.merge([converted(lake, dropped, 1)], BEHIND).failure
    assert failure is not None
    assert f"two columns of one object would be called {name}; nothing was written" in failure.message


def test_what_lies_under_a_key_with_the_name_of_before_is_not_taken_for_it(lake: Lake) -> None:
    small = [converted(lake, BEFORE, 1)]
    assert lake.merge(small, BEFORE).failure is None
    failure = lake.merge(small, BEHIND).failure
    assert failure is not None
    assert failure.occupied
    assert lake.merge(small, BEFORE).failure is None


def test_an_erased_value_is_in_neither_column(lake: Lake) -> None:
    merged = lake.merge([converted(lake, BEFORE, 1), converted(lake, BEHIND, 2)], BEHIND).written
    assert merged is not None
    file = DataFile(**{name: getattr(merged, name) for name in DataFile.__dataclass_fields__})
    rule = replace(make_erasure_rule(BEHIND, "w = 'v3'"), erasure_id=1)
    key = "p/merged/out-r1.parquet"
    task = WriteTask(number=1, inputs=(file,), erasures=(rule,), table_id=1, definition_version=2, output_key=key)
    result = write_object(task, BEHIND, lake.stores, lake.lake)
    assert (result.failure, result.matching) == (None, 12)
    names, values = held(lake, key)
    assert names == NAMES["behind"]
    assert values["v"] == values["w"]
    assert "v3" not in values["v"]


def test_a_repair_gives_the_same_bytes(lake: Lake) -> None:
    small = converted(lake, BEHIND, 1)
    body = lake.stores.get("lake", small.key)
    lake.stores.delete("lake", [small.key])
    source = a_convert_task(1, content_length=len(an_object(*LINES)), metric_columns=(2, 3))
    task = RepairTask(source=source, recorded=(small,))
    assert repair_object(task, BEHIND, lake.stores, lake.lake).failure is None
    assert lake.stores.get("lake", small.key) == body
