"""Finds tables and partitions through Glue, and their objects through a listing, a manifest or symlinks."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, PartialCredentialsError
from pyarrow import fs

from prism_assets.aws_clients import Patience, aws_client
from prism_assets.domain.columns.types import DateType
from prism_assets.domain.errors import AccessDenied, CatalogUnavailable, StoreUnavailable, WrongUse
from prism_assets.domain.names import DAY_COLUMN, is_name
from prism_assets.domain.records.change_log import SUFFIX
from prism_assets.domain.records.joins import CHANGE_GROUP
from prism_assets.objectstore.manifests import read_manifest
from prism_assets.objectstore.store_errors import unclear
from prism_assets.settings import SYMLINK_SUFFIX, ReaderSettings
from prism_assets.unreachable import silence_of, without_credentials

if TYPE_CHECKING:
    from mypy_boto3_glue import GlueClient

_READERS = 8
_PATIENCE = Patience(tries=3, connect_seconds=5, read_seconds=30)
_DENIED = re.compile("Denied|Unrecognized|InvalidSignature|Expired|Forbidden")
_SKIPPED = re.compile(r"^[._#]|~$|#\d+$")
"""Names that Spectrum skips, and unfinished uploads in a local store; S3 would not show those."""


@dataclass(frozen=True, kw_only=True)
class ReadObject:
    """One Parquet object for a reader. The length is in bytes, from the manifest or the listing.

    Symlinks have no lengths; then it is the length of the object, or 0 if the object is missing.
    """

    url: str
    content_length: int


@dataclass(frozen=True, kw_only=True)
class ReadPartition:
    """One partition in the catalog."""

    date: date
    location: str
    objects: tuple[ReadObject, ...]

    @property
    def content_length(self) -> int:
        """Bytes of all objects."""
        return sum(item.content_length for item in self.objects)


@dataclass(frozen=True, kw_only=True)
class ReadTable:
    """One table in the catalog: columns as (name, Hive type), partitions by date."""

    name: str
    columns: tuple[tuple[str, str], ...]
    partitions: tuple[ReadPartition, ...]


class LakeReader:
    """A catalog reader. Needs no write permission and no PostgreSQL."""

    def __init__(self, settings: ReaderSettings) -> None:
        self._prefix = settings.glue_database_prefix
        self._suffix = settings.glue_database_suffix
        self._glue = _glue(settings)
        self.filesystem = open_filesystem(settings)

    def table(self, name: str, day: date | None = None) -> ReadTable:
        """Reads `schema.table`, or one day of it, from the catalog. Raises WrongUse if the table does not exist."""
        database, table = self._place(name)
        with self._translated(name):
            found: Any = self._glue.get_table(DatabaseName=database, Name=table)["Table"]
            locations = self._locations(database, table, day)
        with ThreadPoolExecutor(_READERS) as pool:
            partitions = tuple(pool.map(self._partition, locations))
        columns = tuple((column["Name"], column["Type"]) for column in found["StorageDescriptor"]["Columns"])
        return ReadTable(name=name, columns=columns, partitions=partitions)

    def tables(self) -> Iterator[ReadTable]:
        """Yields all tables of the lake in the catalog, without their partitions.

        Skips symlink databases, because they show the same rows again, and Iceberg tables.
        """
        with self._translated("of the lake"):
            for database in self._pages("get_databases", "DatabaseList"):
                schema = self._schema_of(database["Name"])
                for found in self._pages("get_tables", "TableList", DatabaseName=database["Name"]) if schema else ():
                    if _is_of_the_lake(found):
                        columns = ((column["Name"], column["Type"]) for column in found["StorageDescriptor"]["Columns"])
                        yield ReadTable(name=f"{schema}.{found['Name']}", columns=tuple(columns), partitions=())

    def _pages(self, call: Any, items: str, **arguments: Any) -> Iterator[Any]:
        for page in self._glue.get_paginator(call).paginate(**arguments):
            yield from page[items]

    def _schema_of(self, database: str) -> str | None:
        """Returns the schema of a Glue database, or None if the database is not part of the lake."""
        if not (database.startswith(self._prefix) and database.endswith(self._suffix)):
            return None
        schema = database.removeprefix(self._prefix).removesuffix(self._suffix)
        return schema if is_name(schema) and not database.endswith(SYMLINK_SUFFIX) else None

    def has_log_of_changes(self, name: str) -> bool:
        """Whether `schema.table` holds a join table's records: the catalog then has a log of changes beside it."""
        database, table = self._place(name)
        with self._translated(name):
            try:
                found: Any = self._glue.get_table(DatabaseName=database, Name=f"{table}{SUFFIX}")["Table"]
            except self._glue.exceptions.EntityNotFoundException:
                return False
        return any(column["Name"] == CHANGE_GROUP for column in found["StorageDescriptor"]["Columns"])

    def _place(self, name: str) -> tuple[str, str]:
        """Returns Glue's database and table name."""
        schema, _, table = name.partition(".")
        if not (schema and table):
            raise WrongUse(f"{name or 'nothing'} is not the name of a table: write schema.table")
        return f"{self._prefix}{schema}{self._suffix}", table

    @contextmanager
    def _translated(self, name: str) -> Iterator[None]:
        """Translates Glue errors about a table into the error tree."""
        glue = f"Glue at {self._glue.meta.endpoint_url}"
        try:
            yield
        except ClientError as error:
            status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
            code = error.response.get("Error", {}).get("Code") or status
            if code == "EntityNotFoundException":
                raise WrongUse(f"the catalog has no table {name}; {self._advice(name)}?") from error
            if _DENIED.search(str(code)):
                raise AccessDenied(f"{glue} answered {code}: check the credentials and the role's policy") from error
            raise CatalogUnavailable(f"{glue} answered {code}: repeat later") from error
        except (NoCredentialsError, PartialCredentialsError) as error:
            raise AccessDenied(without_credentials("Glue")) from error
        except BotoCoreError as error:
            raise CatalogUnavailable(silence_of("Glue", error, "PRISM_GLUE_ENDPOINT")) from error

    def _advice(self, name: str) -> str:
        """Returns the advice for a missing table: its lower-case name, if the catalog has one, or a catalog run."""
        lower = name.lower()
        if lower != name:
            database, table = self._place(lower)
            with suppress(ClientError, BotoCoreError):
                self._glue.get_table(DatabaseName=database, Name=table)
                return f"did you mean {lower}"
        return "has `prism catalog` run"

    def _locations(self, database: str, table: str, day: date | None) -> list[tuple[date, str, str]]:
        arguments: dict[str, Any] = {"DatabaseName": database, "TableName": table}
        if day is not None:
            arguments["Expression"] = f"dt = '{day.isoformat()}'"
        pages = self._glue.get_paginator("get_partitions").paginate(**arguments)
        found = [
            (date.fromisoformat(partition["Values"][0]), storage["Location"], storage.get("InputFormat", ""))
            for page in pages
            for partition in page["Partitions"]
            for storage in [partition["StorageDescriptor"]]
        ]
        return sorted(entry for entry in found if day in (None, entry[0]))

    def _partition(self, entry: tuple[date, str, str]) -> ReadPartition:
        day, location, input_format = entry
        try:
            if input_format.endswith("SymlinkTextInputFormat"):
                objects = self._symlinks(location)
            else:
                objects = self._manifest(location) if location.endswith(".json") else self._listing(location)
        except FileNotFoundError as error:
            raise StoreUnavailable(
                f"{location} cannot be read: it does not exist; repeat, or run `prism catalog --republish`"
            ) from error
        except OSError as error:
            raise unclear(location, path_of(location).partition("/")[0], str(error)) from error
        return ReadPartition(date=day, location=location, objects=tuple(objects))

    def _manifest(self, location: str) -> list[ReadObject]:
        with self.filesystem.open_input_file(path_of(location)) as file:
            entries = read_manifest(file.read())
        return [ReadObject(url=entry.url, content_length=entry.content_length) for entry in entries]

    def _symlinks(self, location: str) -> list[ReadObject]:
        """Reads every line of every file in the folder, as Hive does."""
        urls: list[str] = []
        for item in self._listing(location):
            with self.filesystem.open_input_file(path_of(item.url)) as file:
                urls += file.read().decode().splitlines()
        infos: Sequence[Any] = self.filesystem.get_file_info([path_of(url) for url in urls])
        return [ReadObject(url=url, content_length=info.size or 0) for url, info in zip(urls, infos, strict=True)]

    def _listing(self, location: str) -> list[ReadObject]:
        selector = fs.FileSelector(path_of(location).rstrip("/"), allow_not_found=True)
        files: Sequence[Any] = self.filesystem.get_file_info(selector)
        return [
            ReadObject(url=f"s3://{info.path}", content_length=info.size)
            for info in sorted(files, key=lambda info: info.path)
            if info.type == fs.FileType.File and not _SKIPPED.search(info.base_name)
        ]


def _is_of_the_lake(table: Any) -> bool:
    keys = [(key["Name"], key["Type"]) for key in table.get("PartitionKeys", ())]
    return keys == [(DAY_COLUMN, DateType.in_glue)] and table.get("Parameters", {}).get("classification") == "parquet"


def path_of(url: str) -> str:
    """Strips `s3://`, because pyarrow's file systems want `bucket/key`."""
    return url.removeprefix("s3://")


def _glue(settings: ReaderSettings) -> GlueClient:
    client: GlueClient = aws_client("glue", settings.glue_endpoint, settings.region, _PATIENCE)
    return client


def open_filesystem(settings: ReaderSettings, *, request_seconds: float = 60, repeat: bool = True) -> fs.FileSystem:
    """Returns pyarrow's file system for the lake. `request_seconds` limits a request, and `repeat` allows retries."""
    if settings.local_root is not None:
        return fs.SubTreeFileSystem(os.path.abspath(settings.local_root), fs.LocalFileSystem())
    options: dict[str, Any] = {"region": settings.region, "connect_timeout": 5, "request_timeout": request_seconds}
    if not repeat:
        options["retry_strategy"] = fs.AwsStandardS3RetryStrategy(max_attempts=1)
    if settings.s3_endpoint:
        scheme, _, host = settings.s3_endpoint.partition("://")
        options |= {"endpoint_override": host.rstrip("/"), "scheme": scheme}
    return fs.S3FileSystem(**options)
