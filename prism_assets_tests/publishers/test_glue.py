"""The catalog in Glue, against a server with its behaviour and a client that enforces its limits."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping
from datetime import date, timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError, ReadTimeoutError

from prism_assets.domain.errors import AccessDenied, CatalogUnavailable, InvariantBroken, PrismError, TerminalError
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.tables.file import parse_table_file
from prism_assets.publishers.glue_catalog import GlueCatalog, glue_client, table_input
from prism_assets_tests.builders import a_table
from prism_assets_tests.glue_limits import GlueLimitExceeded
from prism_assets_tests.publishers.recorder import Recorder

_NUMBERS = itertools.count(1)
ROOT = "s3://lake/a.log.events/"
DAY = date(2026, 3, 1)


@pytest.fixture
def glue(services: Mapping[str, str]) -> GlueCatalog:
    """A catalog with databases of its own."""
    return GlueCatalog(services["PRISM_GLUE_ENDPOINT"], "us-east-1", prefix=f"g{next(_NUMBERS)}_", suffix="_x")


@pytest.fixture
def table() -> TableDefinition:
    columns = ["{name: path, type: string, length: 20}", '{name: price, type: "decimal(9, 2)"}']
    return parse_table_file(a_table(columns=columns), "t.yaml")


@pytest.fixture
def client(glue: GlueCatalog) -> Recorder:
    """The client of the catalog, with every call noted and some of them changed."""
    glue._made = recorder = Recorder(glue._client)  # type: ignore[assignment]
    return recorder


def shown(glue: GlueCatalog, table: TableDefinition) -> Any:
    return glue._client.get_table(DatabaseName=glue.database_name(table), Name="events")["Table"]


def some_days(count: int, folder: str = "live") -> dict[date, str]:
    days = [DAY + timedelta(days=number) for number in range(count)]
    return {day: f"{ROOT}{folder}/dt={day}/" for day in days}


def an_error(code: str, tries_before: int = 0) -> ClientError:
    """Returns an error of Glue, after a number of tries without an answer."""
    answer: Any = {"Error": {"Code": code, "Message": "no"}, "ResponseMetadata": {"RetryAttempts": tries_before}}
    return ClientError(answer, "Call")


def test_a_table_is_created_as_readers_expect_it(glue: GlueCatalog, table: TableDefinition) -> None:
    assert glue.define(table, ROOT) == "created"
    found = shown(glue, table)
    assert found["DatabaseName"].endswith("_log_x")
    assert (found["TableType"], found["Owner"], found["Description"]) == ("EXTERNAL_TABLE", "team:test", "a test table")
    assert found["Parameters"] == {"EXTERNAL": "TRUE", "classification": "parquet"}
    assert found["PartitionKeys"] == [{"Name": "dt", "Type": "date"}]
    storage = found["StorageDescriptor"]
    assert [(column["Name"], column["Type"]) for column in storage["Columns"]] == [
        ("time", "timestamp"),
        ("id", "bigint"),
        ("path", "varchar(20)"),
        ("price", "decimal(9,2)"),
    ]
    assert storage["Location"] == ROOT
    assert storage["InputFormat"] == "org.apache.hadoop.hive.ql.io.parquet.MapredParquetInputFormat"
    assert storage["OutputFormat"] == "org.apache.hadoop.hive.ql.io.parquet.MapredParquetOutputFormat"
    assert storage["SerdeInfo"] == {
        "SerializationLibrary": "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe",
        "Parameters": {"serialization.format": "1"},
    }


def test_a_table_at_rest_gets_no_new_version(glue: GlueCatalog, client: Recorder, table: TableDefinition) -> None:
    glue.define(table, ROOT)
    version = shown(glue, table).get("VersionId")
    client.calls.clear()
    assert glue.define(table, ROOT) is None
    assert client.calls == ["get_table"]
    assert shown(glue, table).get("VersionId") == version


def test_an_added_column_updates_the_table(glue: GlueCatalog, table: TableDefinition) -> None:
    glue.define(table, ROOT)
    wider = dataclasses.replace(table, columns=(*table.columns, dataclasses.replace(table.columns[1], name="more")))
    assert glue.define(wider, ROOT) == "updated"
    assert shown(glue, table)["StorageDescriptor"]["Columns"][-1]["Name"] == "more"
    assert glue.define(wider, ROOT) is None


@pytest.mark.parametrize("change", [{"description": "else"}, {"owner": "team:else"}, {"owner": None}])
def test_what_people_read_is_updated_too(glue: GlueCatalog, table: TableDefinition, change: dict[str, Any]) -> None:
    glue.define(table, ROOT)
    assert glue.define(dataclasses.replace(table, **change), ROOT) == "updated"
    assert glue.define(dataclasses.replace(table, **change), ROOT) is None


def test_what_a_column_means_is_its_comment(glue: GlueCatalog, table: TableDefinition) -> None:
    glue.define(table, ROOT)
    first, *others = table.columns
    told = dataclasses.replace(table, columns=(dataclasses.replace(first, description="when it was"), *others))
    assert glue.define(told, ROOT) == "updated"
    columns = shown(glue, table)["StorageDescriptor"]["Columns"]
    assert [column.get("Comment") for column in columns] == ["when it was", *[None] * len(others)]
    assert glue.define(told, ROOT) is None


def test_a_comment_of_somebody_else_stays(glue: GlueCatalog, client: Recorder, table: TableDefinition) -> None:
    glue.define(table, ROOT)
    changed = table_input(table, ROOT)
    changed["StorageDescriptor"]["Columns"][1]["Comment"] = "by hand"
    client.update_table(DatabaseName=glue.database_name(table), TableInput=changed)
    assert glue.define(table, ROOT) is None
    assert glue.define(dataclasses.replace(table, description="else"), ROOT) == "updated"
    assert shown(glue, table)["StorageDescriptor"]["Columns"][1]["Comment"] == "by hand"


def test_a_second_table_shares_the_database(glue: GlueCatalog, table: TableDefinition) -> None:
    glue.define(table, ROOT)
    assert glue.define(parse_table_file(a_table("log.other"), "o.yaml"), ROOT) == "created"


def test_two_hundred_and_fifty_partitions_go_in_batches_within_the_limits(
    glue: GlueCatalog, client: Recorder, table: TableDefinition
) -> None:
    glue.define(table, ROOT)
    client.calls.clear()
    glue.publish(table, some_days(250))
    assert glue.shown_locations(table, some_days(250)) == some_days(250)
    assert client.calls.count("batch_create_partition") == 3
    client.calls.clear()
    glue.publish(table, some_days(250, "merged"))
    assert glue.shown_locations(table, some_days(250)) == some_days(250, "merged")
    assert client.calls.count("batch_update_partition") == 3
    assert "batch_create_partition" not in client.calls


def test_the_limits_are_enforced_here(glue: GlueCatalog, table: TableDefinition) -> None:
    """The control of the test above."""
    glue.define(table, ROOT)
    with pytest.raises(GlueLimitExceeded):
        glue._client.batch_create_partition(
            DatabaseName=glue.database_name(table), TableName="events", PartitionInputList=[{}] * 101
        )


def test_publishing_the_same_again_only_looks(glue: GlueCatalog, client: Recorder, table: TableDefinition) -> None:
    glue.define(table, ROOT)
    glue.publish(table, some_days(3))
    client.calls.clear()
    glue.publish(table, some_days(3))
    assert set(client.calls) == {"batch_get_partition"}


def test_some_partitions_are_new_and_some_move(glue: GlueCatalog, table: TableDefinition) -> None:
    glue.define(table, ROOT)
    glue.publish(table, some_days(3))
    mixed = {**some_days(5), **some_days(2, "merged")}
    glue.publish(table, mixed)
    assert glue.shown_locations(table, mixed) == mixed


def test_recorded_days_take_one_call_and_one_to_read_back(
    glue: GlueCatalog, client: Recorder, table: TableDefinition
) -> None:
    glue.define(table, ROOT)
    client.calls.clear()
    assert glue.publish(table, some_days(2), recorded=()) == {}
    assert glue.publish(table, some_days(2, "merged"), recorded=some_days(2)) == {}
    assert client.calls == [
        *("batch_create_partition", "batch_get_partition"),
        *("batch_update_partition", "batch_get_partition"),
    ]
    assert glue.shown_locations(table, some_days(2)) == some_days(2, "merged")


def test_days_that_are_recorded_wrongly_are_shown_by_more_calls(
    glue: GlueCatalog, client: Recorder, table: TableDefinition
) -> None:
    glue.define(table, ROOT)
    glue.publish(table, some_days(2, "old"))
    wanted = some_days(3, "merged")
    _, there, missing = sorted(wanted)
    client.calls.clear()
    assert glue.publish(table, wanted, recorded={there, missing}) == {}
    assert glue.shown_locations(table, wanted) == wanted
    assert client.calls.count("batch_update_partition") == 2
    assert client.calls.count("batch_create_partition") == 2


def test_a_recorded_day_that_glue_refuses_is_not_tried_twice(
    glue: GlueCatalog, client: Recorder, table: TableDefinition
) -> None:
    glue.define(table, ROOT)
    glue.publish(table, some_days(1, "old"))
    detail = {"ErrorCode": "InternalServiceException", "ErrorMessage": "later"}
    refusal = {"Errors": [{"PartitionValues": ["2026-03-01"], "ErrorDetail": detail}]}
    client.instead["batch_update_partition"] = lambda **_: refusal
    client.calls.clear()
    assert set(glue.publish(table, some_days(1), recorded=[DAY])) == {DAY}
    assert client.calls == ["batch_update_partition", "batch_get_partition"]


def test_publishing_nothing_asks_nothing(glue: GlueCatalog, client: Recorder, table: TableDefinition) -> None:
    glue.publish(table, {})
    assert client.calls == []


def test_days_without_a_partition_are_left_out(glue: GlueCatalog, table: TableDefinition) -> None:
    glue.define(table, ROOT)
    glue.publish(table, some_days(1))
    assert glue.shown_locations(table, [DAY, DAY + timedelta(days=1)]) == some_days(1)


@pytest.mark.parametrize("call", ["batch_create_partition", "batch_update_partition"])
def test_errors_inside_a_good_answer_are_read(
    glue: GlueCatalog, client: Recorder, table: TableDefinition, call: str
) -> None:
    glue.define(table, ROOT)
    if call == "batch_update_partition":
        glue.publish(table, some_days(1, "old"))
    detail = {"ErrorCode": "InternalServiceException", "ErrorMessage": "later"}
    client.instead[call] = lambda **_: {"Errors": [{"PartitionValues": ["2026-03-01"], "ErrorDetail": detail}]}
    refused = glue.publish(table, some_days(1))
    assert {day: (type(error), str(error)) for day, error in refused.items()} == {
        DAY: (CatalogUnavailable, "Glue answered InternalServiceException: repeat later")
    }


def test_a_partition_that_somebody_else_made_meanwhile_is_settled_by_looking(
    glue: GlueCatalog, client: Recorder, table: TableDefinition
) -> None:
    glue.define(table, ROOT)
    glue.publish(table, some_days(1))
    answers: Iterator[Any] = iter([{"Partitions": []}])
    real = client._inner.batch_get_partition
    client.instead["batch_get_partition"] = lambda **arguments: next(answers, None) or real(**arguments)
    glue.publish(table, some_days(1))
    assert client.calls.count("batch_create_partition") == 2


def test_a_batch_that_did_nothing_is_noticed_by_looking(
    glue: GlueCatalog, client: Recorder, table: TableDefinition
) -> None:
    glue.define(table, ROOT)
    client.instead["batch_create_partition"] = lambda **_: {"Errors": []}
    refused = glue.publish(table, some_days(2))
    assert sorted(refused) == sorted(some_days(2))
    assert all("the catalog does not show it as published" in str(error) for error in refused.values())


def test_a_lost_answer_is_settled_by_repeating(glue: GlueCatalog, client: Recorder, table: TableDefinition) -> None:
    glue.define(table, ROOT)
    client.lose_answer("batch_create_partition", ReadTimeoutError(endpoint_url="http://glue"))
    with pytest.raises(CatalogUnavailable, match="does not answer"):
        glue.publish(table, some_days(2))
    client.calls.clear()
    glue.publish(table, some_days(2))
    assert set(client.calls) == {"batch_get_partition"}


def test_a_lost_answer_to_a_new_table_is_settled_by_repeating(
    glue: GlueCatalog, client: Recorder, table: TableDefinition
) -> None:
    client.lose_answer("create_table", ReadTimeoutError(endpoint_url="http://glue"))
    with pytest.raises(CatalogUnavailable):
        glue.define(table, ROOT)
    assert glue.define(table, ROOT) is None


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("ThrottlingException", CatalogUnavailable),
        ("InternalServiceException", CatalogUnavailable),
        ("ConcurrentModificationException", CatalogUnavailable),
        ("AccessDeniedException", AccessDenied),
        ("ExpiredTokenException", AccessDenied),
        ("InvalidInputException", TerminalError),
    ],
)
def test_errors_of_glue_are_errors_of_the_tree(
    glue: GlueCatalog, client: Recorder, table: TableDefinition, code: str, kind: type[PrismError]
) -> None:
    def refuse(**_: Any) -> Any:
        raise an_error(code)

    client.instead["get_table"] = refuse
    with pytest.raises(kind) as raised:
        glue.define(table, ROOT)
    assert "\n" not in str(raised.value)


def test_a_table_that_went_away_is_a_broken_invariant(glue: GlueCatalog, table: TableDefinition) -> None:
    glue.define(table, ROOT)
    glue._client.delete_table(DatabaseName=glue.database_name(table), Name="events")
    with pytest.raises(InvariantBroken, match="the next catalog run defines it again"):
        glue.publish(table, some_days(1))


def test_a_server_that_is_not_there_is_told_in_one_line(table: TableDefinition) -> None:
    with pytest.raises(CatalogUnavailable, match=r"Glue at .* does not answer") as raised:
        GlueCatalog("http://127.0.0.1:1", "us-east-1").define(table, ROOT)
    assert "\n" not in str(raised.value)


def test_nothing_is_opened_before_it_is_used() -> None:
    assert GlueCatalog("http://127.0.0.1:1", "us-east-1")._made is None


class Watch:
    """Notes the begin and the answer of each changing call, between the calls to Glue."""

    def __init__(self, client: Recorder) -> None:
        self._calls = client.calls

    def begin(self) -> None:
        self._calls.append("begin")

    def answered(self) -> None:
        self._calls.append("answered")


def test_who_changes_the_catalog_hears_of_each_call_that_does(
    glue: GlueCatalog, client: Recorder, table: TableDefinition
) -> None:
    glue.define(table, ROOT, Watch(client))
    made = ["begin", "create_database", "answered", "begin", "create_table", "answered"]
    assert client.calls == ["get_table", "get_database", *made, "get_table"]
    client.calls.clear()
    glue.publish(table, some_days(1), Watch(client))
    glue.publish(table, {**some_days(2), **some_days(1, "merged")}, Watch(client))
    assert [call for call in client.calls if call != "batch_get_partition"] == [
        *("begin", "batch_create_partition", "answered"),
        *("begin", "batch_update_partition", "answered"),
        *("begin", "batch_create_partition", "answered"),
    ]


@pytest.mark.parametrize(
    ("error", "is_answered"),
    [
        (ReadTimeoutError(endpoint_url="http://glue"), False),
        (an_error("AccessDeniedException"), True),
        (an_error("InternalServiceException"), False),
        (an_error("OperationTimeoutException"), False),
        (an_error("InvalidInputException", tries_before=1), False),
    ],
)
def test_a_call_is_answered_when_no_try_of_it_can_land_any_more(
    glue: GlueCatalog, client: Recorder, table: TableDefinition, error: Exception, is_answered: bool
) -> None:
    glue.define(table, ROOT)
    client.lose_answer("batch_create_partition", error)
    client.calls.clear()
    with pytest.raises(PrismError):
        glue.publish(table, some_days(1), Watch(client))
    assert ("answered" in client.calls) is is_answered


def test_a_refused_partition_keeps_no_other_from_being_shown(
    glue: GlueCatalog, client: Recorder, table: TableDefinition
) -> None:
    glue.define(table, ROOT)
    real = client._inner.batch_create_partition

    def refuse_one(**arguments: Any) -> Any:
        one, *others = arguments.pop("PartitionInputList")
        real(**arguments, PartitionInputList=others)
        detail = {"ErrorCode": "ResourceNumberLimitExceededException", "ErrorMessage": "full"}
        return {"Errors": [{"PartitionValues": one["Values"], "ErrorDetail": detail}]}

    client.instead["batch_create_partition"] = refuse_one
    days = some_days(3)
    refused = glue.publish(table, days)
    assert [(day, str(error)) for day, error in refused.items()] == [
        (DAY, "Glue answered ResourceNumberLimitExceededException: full")
    ]
    assert isinstance(refused[DAY], TerminalError)
    assert sorted(glue.shown_locations(table, days)) == sorted(days)[1:]


def test_partitions_that_are_missing_elsewhere_or_without_a_column_are_outdated(
    glue: GlueCatalog, table: TableDefinition
) -> None:
    days = some_days(3)
    assert glue.outdated(table, days) == frozenset(days), "there is no table yet"
    glue.define(table, ROOT)
    glue.publish(table, some_days(2))
    assert glue.outdated(table, days) == {max(days)}
    assert glue.outdated(table, {**some_days(2), **some_days(1, "merged")}) == {DAY}
    wider = dataclasses.replace(table, columns=(*table.columns, dataclasses.replace(table.columns[1], name="more")))
    assert glue.outdated(wider, some_days(2)) == frozenset(some_days(2))


@pytest.mark.parametrize("fail_fast", [False, True])
def test_no_call_of_the_client_takes_longer_than_the_longest(fail_fast: bool) -> None:
    """Every try may wait for its connection and its answer. Between tries botocore pauses, at most 20 s each time."""
    found: Any = glue_client("http://127.0.0.1:1", "us-east-1", fail_fast=fail_fast).meta.config
    tries = found.retries["total_max_attempts"]
    longest = GlueCatalog("http://127.0.0.1:1", "us-east-1", fail_fast=fail_fast).longest_call_seconds
    assert longest == tries * (found.connect_timeout + found.read_timeout) + (tries - 1) * 20
