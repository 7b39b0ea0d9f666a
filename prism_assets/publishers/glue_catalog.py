"""AWS Glue through boto3. Batch calls stay within the service's limits, and answers are checked for errors inside."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any, TypeVar

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    NoCredentialsError,
    ParamValidationError,
    PartialCredentialsError,
)

from prism_assets.aws_clients import Patience, aws_client
from prism_assets.domain.columns.types import DateType
from prism_assets.domain.errors import (
    AccessDenied,
    CatalogUnavailable,
    InvariantBroken,
    PrismError,
    TerminalError,
)
from prism_assets.domain.files.keys import is_symlink_folder
from prism_assets.domain.names import DAY_COLUMN
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.text import counted
from prism_assets.publishers.base import UNOBSERVED, CallObserver
from prism_assets.transactions import refuse_inside_transaction
from prism_assets.unreachable import silence_of, without_credentials

if TYPE_CHECKING:
    from mypy_boto3_glue import GlueClient

BATCH_CREATE = 100
BATCH_UPDATE = 100
BATCH_DELETE = 25
BATCH_GET = 1_000
LIST_TABLES = 100
_LISTED = 2
"""From so many tables of one database on, one list compares a hundred of them. A call each would cost more."""
_GET_TRIES = 5
_PARQUET = {
    "InputFormat": "org.apache.hadoop.hive.ql.io.parquet.MapredParquetInputFormat",
    "OutputFormat": "org.apache.hadoop.hive.ql.io.parquet.MapredParquetOutputFormat",
}
_SYMLINKS = {
    "InputFormat": "org.apache.hadoop.hive.ql.io.SymlinkTextInputFormat",
    "OutputFormat": "org.apache.hadoop.hive.ql.io.HiveIgnoreKeyTextOutputFormat",
}
_SERDE = "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe"
_UNDECIDED = {
    "ThrottlingException",
    "InternalServiceException",
    "OperationTimeoutException",
    "ServiceUnavailable",
}
_DENIED = {
    "AccessDeniedException",
    "UnrecognizedClientException",
    "InvalidSignatureException",
    "ExpiredTokenException",
}

_T = TypeVar("_T")


_USUAL = Patience(tries=4, connect_seconds=5, read_seconds=30)
_FAIL_FAST = Patience(tries=2, connect_seconds=2, read_seconds=5)


def glue_client(endpoint: str | None, region: str, *, fail_fast: bool = False) -> GlueClient:
    """Returns a Glue client that retries throttled calls. With `fail_fast` it gives up sooner on a silent server."""
    client: GlueClient = aws_client("glue", endpoint, region, _FAIL_FAST if fail_fast else _USUAL)
    return client


class GlueCatalog:
    """The catalog in AWS Glue: one database per schema, with the partition key `dt`."""

    def __init__(
        self, endpoint: str | None, region: str, *, prefix: str = "", suffix: str = "", fail_fast: bool = False
    ) -> None:
        self._endpoint = endpoint
        self._region = region
        self._prefix = prefix
        self._suffix = suffix
        self._fail_fast = fail_fast
        self._made: GlueClient | None = None

    @property
    def _client(self) -> GlueClient:
        if self._made is None:
            self._made = glue_client(self._endpoint, self._region, fail_fast=self._fail_fast)
        return self._made

    @property
    def longest_call_seconds(self) -> float:
        """The time of all retries of one call, with the pauses between them."""
        return (_FAIL_FAST if self._fail_fast else _USUAL).longest_call_seconds

    def database_name(self, table: TableDefinition) -> str:
        """Catalog prefix + schema + suffix."""
        return f"{self._prefix}{table.name.schema}{self._suffix}"

    def differs(self, table: TableDefinition, location: str) -> bool:
        """Whether the table is missing or differs from its definition. Makes one call."""
        with _translated():
            return _is_other(table, location, self._find(table))

    def differing(self, tables: Sequence[tuple[TableDefinition, str]]) -> frozenset[int]:
        """Returns the ids of tables, given with their locations, that are missing or differ from their definitions.

        Makes one call a table, or for `_LISTED` and more tables of a database one call for each hundred of them. A
        database with many tables of others is not read to its end: missing tables are then asked for by name.
        """
        by_database: dict[str, list[tuple[TableDefinition, str]]] = {}
        for table, location in tables:
            by_database.setdefault(self.database_name(table), []).append((table, location))
        differing = set()
        for database, wanted in by_database.items():
            with _translated():
                listed = self._list(database, len(wanted)) if len(wanted) >= _LISTED else {}
                for table, location in wanted:
                    found = listed.get(table.name.table) or self._find(table)
                    if _is_other(table, location, found):
                        differing.add(table.table_id)
        return frozenset(differing)

    def _list(self, database: str, wanted: int) -> dict[str, Any]:
        """Returns the first tables of a database by name: about twice as many as wanted, or none without a database."""
        found: dict[str, Any] = {}
        token: dict[str, Any] = {}
        for _ in range(1 + 2 * wanted // LIST_TABLES):
            try:
                page = self._client.get_tables(DatabaseName=database, MaxResults=LIST_TABLES, **token)
            except ClientError as error:
                if _code(error) != "EntityNotFoundException":
                    raise
                return {}
            found |= {table["Name"]: table for table in page["TableList"]}
            if not (following := page.get("NextToken")):
                break
            token = {"NextToken": following}
        return found

    def _find(self, table: TableDefinition) -> Any:
        try:
            return self._client.get_table(DatabaseName=self.database_name(table), Name=table.name.table)["Table"]
        except ClientError as error:
            if _code(error) != "EntityNotFoundException":
                raise
            return None

    def define(self, table: TableDefinition, location: str, observer: CallObserver = UNOBSERVED) -> str | None:
        """Creates or updates the table, then reads back. An unchanged table gets no new version.

        Raises CatalogUnavailable if the catalog does not show the table as defined afterwards.
        """
        database, expected = self.database_name(table), table_input(table, location)
        with _translated():
            found = self._find(table)
            if found is None:
                self._create(database, expected, observer)
            elif _same_table(found, expected := _keeping_comments(expected, found)):
                return None
            else:
                self._update_table(database, expected, found, observer)
            shown = self._find(table)
        if shown is None or not _same_table(shown, _keeping_comments(expected, shown)):
            raise CatalogUnavailable(f"the catalog does not show {table.name} as defined; repeat")
        return "created" if found is None else "updated"

    def _update_table(self, database: str, wanted: Any, found: Any, observer: CallObserver) -> None:
        version = {"VersionId": found["VersionId"]} if found.get("VersionId") else {}
        _change(
            observer, self._client.update_table, DatabaseName=database, TableInput=wanted, SkipArchive=True, **version
        )

    def _create(self, database: str, wanted: Any, observer: CallObserver) -> None:
        try:
            self._client.get_database(Name=database)
        except ClientError as error:
            if _code(error) != "EntityNotFoundException":
                raise
            _tolerate(
                "AlreadyExistsException",
                lambda: _change(observer, self._client.create_database, DatabaseInput={"Name": database}),
            )
        _tolerate(
            "AlreadyExistsException",
            lambda: _change(observer, self._client.create_table, DatabaseName=database, TableInput=wanted),
        )

    def remove(self, table: TableDefinition, observer: CallObserver = UNOBSERVED) -> None:
        """Deletes the table, then reads back. Raises CatalogUnavailable if it still exists."""
        with _translated():
            if self._find(table) is None:
                return
            database = self.database_name(table)
            _tolerate(
                "EntityNotFoundException",
                lambda: _change(observer, self._client.delete_table, DatabaseName=database, Name=table.name.table),
            )
            if self._find(table) is not None:
                raise CatalogUnavailable(f"the catalog still shows {table.name}; repeat")

    def outdated(self, table: TableDefinition, locations: Mapping[date, str]) -> frozenset[date]:
        """Asks for the partitions, 1,000 a call. Returns all days if the table is missing."""
        days = sorted(locations)
        with _translated():
            try:
                there = self._shapes(table, days)
            except ClientError as error:
                if _code(error) != "EntityNotFoundException":
                    raise
                return frozenset(days)
        return frozenset(day for day in days if there.get(day) != _shape(table, locations[day]))

    def publish(
        self,
        table: TableDefinition,
        locations: Mapping[date, str],
        observer: CallObserver = UNOBSERVED,
        recorded: Collection[date] | None = None,
    ) -> dict[date, PrismError]:
        """Updates existing partitions, creates missing ones, then reads back. Reading back also settles lost answers.

        `recorded` are the days that Glue has by the record, so most batches need one call and one to read back. Days
        that Glue does not show as wanted afterwards are updated or created by their state in Glue. Without a record
        (None) this state is read first. A partition refused by Glue does not block others.
        """
        days = sorted(locations)
        failed: dict[date, PrismError] = {}
        with _translated():
            if recorded is not None:
                failed |= self._set(table, days, recorded, locations, observer)
            shown = self._shapes(table, days)
            left = [day for day in days if day not in failed and shown.get(day) != _shape(table, locations[day])]
            if left:
                failed |= self._set(table, left, shown, locations, observer)
                shown |= self._shapes(table, left)
        return {
            day: failed.get(day) or CatalogUnavailable("the catalog does not show it as published; repeat")
            for day in days
            if shown.get(day) != _shape(table, locations[day])
        }

    def _set(
        self,
        table: TableDefinition,
        days: Sequence[date],
        there: Collection[date],
        locations: Mapping[date, str],
        observer: CallObserver,
    ) -> dict[date, PrismError]:
        """Updates the partitions in `there` and creates the others. Returns the errors of refused days."""
        failed: dict[date, PrismError] = {}
        for part in _parts([day for day in days if day in there], BATCH_UPDATE):
            failed |= self._update(table, part, locations, observer)
        for part in _parts([day for day in days if day not in there], BATCH_CREATE):
            failed |= self._create_partitions(table, part, locations, observer)
        return failed

    def _update(
        self, table: TableDefinition, days: Sequence[date], locations: Mapping[date, str], observer: CallObserver
    ) -> dict[date, PrismError]:
        answer = _change(
            observer,
            self._client.batch_update_partition,
            DatabaseName=self.database_name(table),
            TableName=table.name.table,
            Entries=[
                {
                    "PartitionValueList": [day.isoformat()],
                    "PartitionInput": partition_input(table, day, locations[day]),
                }
                for day in days
            ],
        )
        return _errors_by_day(answer.get("Errors", []), tolerated="EntityNotFoundException")

    def _create_partitions(
        self, table: TableDefinition, days: Sequence[date], locations: Mapping[date, str], observer: CallObserver
    ) -> dict[date, PrismError]:
        answer = _change(
            observer,
            self._client.batch_create_partition,
            DatabaseName=self.database_name(table),
            TableName=table.name.table,
            PartitionInputList=[partition_input(table, day, locations[day]) for day in days],
        )
        return _errors_by_day(answer.get("Errors", []), tolerated="AlreadyExistsException")

    def withdraw(
        self, table: TableDefinition, days: Collection[date], observer: CallObserver = UNOBSERVED
    ) -> dict[date, PrismError]:
        """Deletes existing partitions, 25 a call, then reads back. Reading back also settles lost answers."""
        ordered = sorted(days)
        with _translated():
            failed: dict[date, PrismError] = {}
            for part in _parts(sorted(self._shapes(table, ordered)), BATCH_DELETE):
                failed |= self._delete(table, part, observer)
            shown = self._shapes(table, ordered)
        return {
            day: failed.get(day) or CatalogUnavailable("the catalog still shows it; repeat") for day in sorted(shown)
        }

    def _delete(self, table: TableDefinition, days: Sequence[date], observer: CallObserver) -> dict[date, PrismError]:
        answer = _change(
            observer,
            self._client.batch_delete_partition,
            DatabaseName=self.database_name(table),
            TableName=table.name.table,
            PartitionsToDelete=[{"Values": [day.isoformat()]} for day in days],
        )
        return _errors_by_day(answer.get("Errors", []), tolerated="EntityNotFoundException")

    def shown_locations(self, table: TableDefinition, days: Collection[date]) -> dict[date, str]:
        """Asks for the partitions of the given days, 1,000 a call."""
        with _translated():
            return {day: shape.location for day, shape in self._shapes(table, sorted(days)).items()}

    def _shapes(self, table: TableDefinition, days: Sequence[date]) -> dict[date, _PartitionShape]:
        found: dict[date, _PartitionShape] = {}
        for part in _parts(days, BATCH_GET):
            found.update(self._get(table, part))
        return found

    def _get(self, table: TableDefinition, days: Sequence[date]) -> dict[date, _PartitionShape]:
        """Gets one batch, and repeats the call for keys left unprocessed. Raises CatalogUnavailable after `_GET_TRIES`
        calls.
        """
        found: dict[date, _PartitionShape] = {}
        keys: list[Any] = [{"Values": [day.isoformat()]} for day in days]
        for _ in range(_GET_TRIES):
            answer = self._client.batch_get_partition(
                DatabaseName=self.database_name(table), TableName=table.name.table, PartitionsToGet=keys
            )
            for partition in answer["Partitions"]:
                found[date.fromisoformat(partition["Values"][0])] = _PartitionShape.of(partition["StorageDescriptor"])
            keys = answer.get("UnprocessedKeys") or []
            if not keys:
                return found
        raise CatalogUnavailable(
            f"Glue left {counted(len(keys), 'partition')} of {table.name} unanswered: repeat later"
        )


@dataclass(frozen=True)
class _PartitionShape:
    """The part of a partition that readers see. Athena and Trino take columns and formats from the partition, not the
    table.
    """

    location: str
    columns: tuple[tuple[str, str], ...]
    input_format: str | None

    @classmethod
    def of(cls, storage: Any) -> _PartitionShape:
        columns = tuple((column["Name"], column["Type"]) for column in storage.get("Columns", []))
        return cls(storage["Location"], columns, storage.get("InputFormat"))


def _shape(table: TableDefinition, location: str) -> _PartitionShape:
    return _PartitionShape.of(_storage(table, location))


def table_input(table: TableDefinition, location: str) -> Any:
    """Returns Glue's TableInput."""
    storage = _storage(table, location)
    for shown, (_, column) in zip(storage["Columns"], table.glue_columns, strict=True):
        shown |= {"Comment": column.description} if column.description else {}
    return {
        "Name": table.name.table,
        "Description": table.description,
        **({"Owner": table.owner} if table.owner else {}),  # Glue refuses an empty owner
        "TableType": "EXTERNAL_TABLE",
        "Parameters": {"EXTERNAL": "TRUE", "classification": "parquet"},
        "PartitionKeys": [{"Name": DAY_COLUMN, "Type": DateType.in_glue}],
        "StorageDescriptor": storage,
    }


def partition_input(table: TableDefinition, day: date, location: str) -> Any:
    """Returns Glue's PartitionInput. The location is the live prefix, a manifest or a folder of symlinks."""
    return {"Values": [day.isoformat()], "StorageDescriptor": _storage(table, location)}


def _storage(table: TableDefinition, location: str) -> Any:
    return {
        "Columns": [
            {"Name": name, "Type": column.glue_type_of(whole=table.whole_structs)}
            for name, column in table.glue_columns
        ],
        "Location": location,
        **(_SYMLINKS if is_symlink_folder(location) else _PARQUET),
        "SerdeInfo": {"SerializationLibrary": _SERDE, "Parameters": {"serialization.format": "1"}},
    }


def _keeping_comments(wanted: Any, found: Any) -> Any:
    """Returns the wanted table, with existing column comments kept where the table file has no description."""
    comments = {column["Name"]: column.get("Comment") for column in found["StorageDescriptor"].get("Columns", [])}
    storage = wanted["StorageDescriptor"]
    columns = [
        {"Comment": comment, **column} if (comment := comments.get(column["Name"])) else column
        for column in storage["Columns"]
    ]
    return {**wanted, "StorageDescriptor": {**storage, "Columns": columns}}


def _same_table(found: Any, wanted: Any) -> bool:
    def shape(value: Any) -> Any:
        storage = value.get("StorageDescriptor", {})
        return (
            [(column["Name"], column["Type"], column.get("Comment", "")) for column in storage.get("Columns", [])],
            storage.get("Location"),
            storage.get("InputFormat"),
            storage.get("OutputFormat"),
            storage.get("SerdeInfo", {}).get("SerializationLibrary"),
            value.get("Description", ""),
            value.get("Owner", "") or "",
            value.get("TableType"),
            {key: value.get("Parameters", {}).get(key) for key in wanted["Parameters"]},
        )

    return bool(shape(found) == shape(wanted))


def _parts(items: Sequence[_T], size: int) -> Iterator[Sequence[_T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def _is_other(table: TableDefinition, location: str, found: Any) -> bool:
    """Whether a table in Glue, or None, differs from its definition."""
    return found is None or not _same_table(found, _keeping_comments(table_input(table, location), found))


def _change(observer: CallObserver, call: Any, **arguments: Any) -> Any:
    """Makes one changing call and reports its answer to the observer.

    An undecided answer, or one after a retry, is not reported, because an earlier try may still land.
    """
    observer.begin()
    try:
        answer = call(**arguments)
    except ClientError as error:
        if _code(error) not in _UNDECIDED and _first_try(error.response):
            observer.answered()
        raise
    if _first_try(answer):
        observer.answered()
    return answer


def _first_try(answer: Any) -> bool:
    """Whether the client made no retry. A retry leaves an earlier try that may still land."""
    return not answer.get("ResponseMetadata", {}).get("RetryAttempts")


def _errors_by_day(errors: Sequence[Any], tolerated: str) -> dict[date, PrismError]:
    """Reads errors by day from a batch answer with status 200. Skips the `tolerated` code: the reading back decides
    there.
    """
    found: dict[date, PrismError] = {}
    for error in errors:
        detail = error.get("ErrorDetail", {})
        code, values = detail.get("ErrorCode", ""), error.get("PartitionValues") or error.get("PartitionValueList")
        if values and code != tolerated:
            found[date.fromisoformat(values[0])] = _meaning(code, detail.get("ErrorMessage", ""))
    return found


def _tolerate(code: str, call: Any) -> None:
    try:
        call()
    except ClientError as error:
        if _code(error) != code:
            raise


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def _meaning(code: str, message: str) -> PrismError:
    """Translates an error code of a whole call or of one partition."""
    if code in _UNDECIDED:
        return CatalogUnavailable(f"Glue answered {code}: repeat later")
    if code in _DENIED:
        return AccessDenied(f"Glue answered {code}: check the credentials and the role's policy")
    if code == "ConcurrentModificationException":
        return CatalogUnavailable("Glue: somebody else changed the table at the same time; repeat")
    if code == "EntityNotFoundException":
        return InvariantBroken(f"Glue: {message}; the next catalog run defines it again")
    return TerminalError(f"Glue answered {code}: {message}")


@contextmanager
def _translated() -> Iterator[None]:
    refuse_inside_transaction("Glue")
    try:
        yield
    except ClientError as error:
        raise _meaning(_code(error), error.response.get("Error", {}).get("Message", "")) from error
    except (NoCredentialsError, PartialCredentialsError) as error:
        raise AccessDenied(without_credentials("Glue")) from error
    except ParamValidationError as error:
        raise TerminalError(f"Glue does not take this: {' '.join(str(error).split())}") from error
    except BotoCoreError as error:
        raise CatalogUnavailable(silence_of("Glue", error, "PRISM_GLUE_ENDPOINT")) from error
