"""Work travels to Spark tasks as JSON and comes back as it was."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic_core import PydanticSerializationError

from prism_assets.domain.files.data_file import ColumnMetrics, DataFile, SmallObject
from prism_assets.domain.files.fingerprints import combine
from prism_assets.domain.work import Failure, from_json, to_json
from prism_assets.domain.work.convert import ConvertResult, ConvertTask, QuarantineCount, ValueErrors
from prism_assets.domain.work.repair import RepairedObject, RepairResult, RepairTask
from prism_assets.domain.work.write import WriteResult, WriteTask

instants = st.datetimes(datetime(1970, 1, 1), datetime(2200, 1, 1), timezones=st.just(timezone.utc))
counts = st.integers(0, 1 << 62)
prints = st.integers(-(1 << 63), (1 << 63) - 1)
texts = st.text(max_size=20)
days = st.dates()
bounds = st.none() | st.booleans() | prints | st.floats(allow_nan=False, allow_infinity=False) | texts
metrics = st.builds(ColumnMetrics, column_id=counts, nulls=st.none() | counts, lower=bounds, upper=bounds)


def tuples(element: st.SearchStrategy[object]) -> st.SearchStrategy[tuple[object, ...]]:
    return st.lists(element, max_size=3).map(tuple)


failures = st.none() | st.builds(Failure, message=texts, transient=st.booleans())
small = st.builds(
    SmallObject,
    bucket=texts,
    key=texts,
    date=days,
    staging_object_id=counts,
    generation=counts,
    delayed=st.booleans(),
    content_length=counts,
    row_count=counts,
    min_time=instants,
    max_time=instants,
    fingerprint=prints,
    metrics=tuples(metrics),
    upload_start_time=instants,
)
inputs = st.builds(
    DataFile,
    bucket=texts,
    key=texts,
    content_length=counts,
    row_count=counts,
    fingerprint=prints,
    min_time=st.none() | instants,
    max_time=st.none() | instants,
    metrics=tuples(metrics),
)
convert_tasks = st.builds(
    ConvertTask,
    staging_object_id=counts,
    bucket=texts,
    key=texts,
    etag=st.none() | texts,
    content_length=counts,
    received=instants,
    sent=st.none() | instants,
    stream_name=texts,
    delayed_dates=st.frozensets(days, max_size=3),
    table_id=counts,
    definition_version=counts,
    metric_columns=tuples(counts),
)
repaired = st.builds(RepairedObject, date=days, key=texts, fault=st.none() | texts, content_length=st.none() | counts)


@settings(max_examples=30)
@given(convert_tasks)
def test_convert_tasks_arrive_as_they_were_sent(task: ConvertTask) -> None:
    assert from_json(ConvertTask, to_json(task)) == task


@settings(max_examples=30)
@given(
    st.builds(
        ConvertResult,
        staging_object_id=counts,
        lines_in=counts,
        rows_out=counts,
        objects=tuples(small),
        quarantined=tuples(st.builds(QuarantineCount, reason=texts, line_count=counts)),
        quarantine_key=st.none() | texts,
        value_errors=tuples(st.builds(ValueErrors, column=texts, reason=texts, count=counts)),
        compiled_lines=counts,
        failure=failures,
    )
)
def test_convert_results_arrive_as_they_were_sent(result: ConvertResult) -> None:
    assert from_json(ConvertResult, to_json(result)) == result


@settings(max_examples=30)
@given(
    st.builds(
        RepairTask,
        source=convert_tasks,
        recorded=tuples(small),
        new_keys=st.dictionaries(days, texts),
        look_only=st.booleans(),
    )
)
def test_repair_tasks_arrive_as_they_were_sent(task: RepairTask) -> None:
    assert from_json(RepairTask, to_json(task)) == task


@settings(max_examples=30)
@given(st.builds(RepairResult, staging_object_id=counts, objects=tuples(repaired), failure=failures))
def test_repair_results_arrive_as_they_were_sent(result: RepairResult) -> None:
    assert from_json(RepairResult, to_json(result)) == result


@settings(max_examples=30)
@given(
    st.builds(
        WriteTask,
        number=counts,
        inputs=tuples(inputs),
        output_key=texts,
        table_id=counts,
        definition_version=counts,
    )
)
def test_write_tasks_arrive_as_they_were_sent(task: WriteTask) -> None:
    assert from_json(WriteTask, to_json(task)) == task


@settings(max_examples=30)
@given(
    st.builds(
        WriteResult,
        number=counts,
        written=st.none()
        | st.builds(
            DataFile,
            bucket=texts,
            key=texts,
            content_length=counts,
            row_count=counts,
            fingerprint=prints,
            metrics=tuples(metrics),
        ),
        failure=failures,
    )
)
def test_write_results_arrive_as_they_were_sent(result: WriteResult) -> None:
    assert from_json(WriteResult, to_json(result)) == result


@settings(deadline=None)
@given(metrics)
@example(ColumnMetrics(1, None, -0.0, 0.0))
@example(ColumnMetrics(1, None, 1e300, "1e300"))
@example(ColumnMetrics(1, 0, False, 0))
def test_bounds_arrive_as_what_they_were(column: ColumnMetrics) -> None:
    """1, 1.0 and True are equal, and not the same bound."""
    written = DataFile(
        bucket="b",
        key="k",
        content_length=1,
        row_count=1,
        fingerprint=1,
        metrics=(column,),
    )
    result = from_json(WriteResult, to_json(WriteResult(number=1, written=written)))
    assert result.written is not None
    assert repr(result.written.metrics) == repr((column,))
    assert hash(result.written) == hash(written)


def test_fields_of_a_later_version_are_passed_over() -> None:
    """Tasks and results may come from another version than the one that reads them."""
    task = ConvertTask(
        staging_object_id=1,
        bucket="b",
        key="k",
        etag=None,
        content_length=1,
        received=datetime(2026, 3, 1, tzinfo=timezone.utc),
        stream_name="s",
        delayed_dates=frozenset(),
        table_id=1,
        definition_version=1,
    )
    assert from_json(ConvertTask, to_json(task).replace("{", '{"later":[1],', 1)) == task


def test_the_text_is_one_line() -> None:
    result = ConvertResult(staging_object_id=1, quarantine_key="a\nb")
    assert "\n" not in to_json(result)


def test_what_cannot_travel_is_refused() -> None:
    odd = ConvertResult(staging_object_id=1, quarantine_key=object())  # type: ignore[arg-type]
    with pytest.raises(PydanticSerializationError):
        to_json(odd)


@given(st.lists(prints), st.randoms())
def test_fingerprints_add_up_in_any_order_and_grouping(values: list[int], random: object) -> None:
    shuffled = sorted(values)
    half = len(shuffled) // 2
    whole = combine(values)
    assert whole == combine([combine(shuffled[:half]), combine(shuffled[half:])])
    assert -(1 << 63) <= whole < 1 << 63
    assert combine([]) == 0
