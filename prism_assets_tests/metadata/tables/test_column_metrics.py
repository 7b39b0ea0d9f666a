"""Column metrics go through jsonb as what they are."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sqlalchemy import text

from prism_assets.domain.files.data_file import ColumnMetrics, MetricValue
from prism_assets.domain.merges.plan import PlannedRange
from prism_assets.metadata.database import Database
from prism_assets.metadata.files import merge_ranges, small_objects
from prism_assets.metadata.tables.column_metrics import from_jsonb, to_jsonb
from prism_assets_tests.builders import a_small_object
from prism_assets_tests.metadata.rows import DAY, KEYS, Rows, a_planned_range, merge_range

wholes = st.integers(-(1 << 63), (1 << 63) - 1)
floats = st.floats(allow_nan=False, allow_infinity=False)
texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=16)
bounds = st.none() | st.booleans() | wholes | floats | texts
columns = st.builds(
    ColumnMetrics,
    column_id=st.integers(1, 10_000),
    nulls=st.none() | st.integers(0, (1 << 63) - 1),
    # Of floats the lower bound is never the zero above zero.
    lower=bounds.map(lambda bound: -0.0 if isinstance(bound, float) and bound == 0 else bound),
    upper=bounds.map(lambda bound: 0.0 if isinstance(bound, float) and bound == 0 else bound),
)
METRICS = (ColumnMetrics(2, 0, 1, (1 << 63) - 1), ColumnMetrics(10, 4, -0.0, 1e300), ColumnMetrics(11, 9, None, None))


@pytest.fixture(scope="module")
def one_database(database_url: str) -> Iterator[Database]:
    """For values that are stored nowhere."""
    made = Database(database_url)
    yield made
    made.dispose()


def a_bound(value: MetricValue) -> ColumnMetrics:
    return ColumnMetrics(1, 0, value, value)


@given(st.lists(columns, max_size=4, unique_by=lambda column: column.column_id))
@example([a_bound(1e300)])
@example([a_bound(-1.7976931348623157e308)])
@example([a_bound(5e-324)])
@example([a_bound(0.1)])
@example([a_bound(1.0)])
@example([a_bound(1)])
@example([a_bound((1 << 63) - 1)])
@example([a_bound("1e300")])
@example([ColumnMetrics(1, 0, -0.0, 0.0)])
def test_metrics_are_read_as_they_were_written(one_database: Database, metrics: list[ColumnMetrics]) -> None:
    with one_database.begin() as connection:
        stored = connection.execute(text("SELECT CAST(:it AS jsonb)"), {"it": to_jsonb(metrics)}).scalar_one()
    ordered = tuple(sorted(metrics, key=lambda column: column.column_id))
    assert repr(from_jsonb(stored)) == repr(ordered), "as text 1, 1.0 and True differ"


def test_what_is_not_known_is_left_out() -> None:
    assert to_jsonb([ColumnMetrics(7, 3, None, "z"), ColumnMetrics(8, None, None, None)]) == (
        '{"7": {"nulls": 3, "upper": "z"}, "8": {}}'
    )
    assert to_jsonb(()) is None
    assert from_jsonb(None) == ()


def test_small_objects_and_ranges_keep_their_metrics(rows: Rows) -> None:
    table = rows.table()
    partition = rows.partition(table)
    one, other = rows.staging(table, 2)
    rows.sql("UPDATE prism_staging_objects SET definition_version = 1")
    told = a_small_object(staging_object_id=one, date=DAY, metrics=METRICS)
    silent = a_small_object(staging_object_id=other, date=DAY)
    with rows.database.begin() as connection:
        small_objects.insert_small_objects(connection, [(partition, told), (partition, silent)])
        found = small_objects.load_above(connection, KEYS, partition, 0)
        merge_range(connection, partition, a_planned_range(found), metrics=METRICS)
        for metrics in (METRICS, METRICS[1:], ()):
            (known,) = merge_ranges.load_chain(connection, KEYS, partition)
            planned = PlannedRange(
                lower_bound=known.lower_bound, upper_bound=known.upper_bound, extends=known, objects=()
            )
            merge_range(connection, partition, planned, metrics=metrics)
            (chained,) = merge_ranges.load_chain(connection, KEYS, partition)
            assert repr(chained.metrics) == repr(metrics)
            assert merge_ranges.load_table_chains(connection, KEYS, table.table_id) == {DAY: [chained]}
        without = connection.execute(text("SELECT count(*) FROM prism_merge_ranges WHERE metrics IS NULL")).scalar_one()
    assert [repr(small.metrics) for small in found] == [repr(METRICS), "()"]
    assert without == 2, "the sentinel and the range"
