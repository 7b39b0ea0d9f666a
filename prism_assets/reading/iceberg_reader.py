"""Reads Iceberg tables as any client does: the catalog names the metadata, and PyArrow reads the files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.io import InputFile, OutputFile
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table
from pyiceberg.typedef import EMPTY_DICT, Properties

from prism_assets.domain.errors import WrongUse
from prism_assets.postgres import url_with_password
from prism_assets.settings import Settings

_ROOT = "prism.local-root"


class LocalFileIO(PyArrowFileIO):
    """Buckets as folders below one root. Addresses remain those of S3."""

    def __init__(self, properties: Properties = EMPTY_DICT) -> None:
        super().__init__(properties)
        self._root = str(properties[_ROOT])

    def new_input(self, location: str) -> InputFile:  # type: ignore[override]  # PyArrow's own, which is one
        """Returns a file in the bucket's folder."""
        return super().new_input(self._path(location))

    def new_output(self, location: str) -> OutputFile:  # type: ignore[override]  # PyArrow's own, which is one
        """Returns a new file with its S3 address. Readers write nothing; tests of foreign writers do."""
        file = super().new_output(self._path(location))
        file._location = location
        return file

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Deletes a file. Like `new_output`, only tests use this."""
        super().delete(self._path(location) if isinstance(location, str) else location)

    def _path(self, location: str) -> str:
        return f"{self._root}/{location.removeprefix('s3://')}" if location.startswith("s3://") else location


class IcebergReader:
    """A client of the Iceberg catalog. Close it, or use it in a `with` block."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.catalog: Catalog = load_catalog("prism", **catalog_properties(settings))

    def __enter__(self) -> IcebergReader:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections to the catalog."""
        self.catalog.close()

    def table(self, name: str) -> Table:
        """Loads the table `schema.table`. Raises WrongUse if it does not exist."""
        try:
            return self.catalog.load_table(self._place(name))
        except NoSuchTableError as error:
            lower = name.lower()  # all names are in lower case
            if lower != name and self.catalog.table_exists(self._place(lower)):
                raise WrongUse(f"the Iceberg catalog has no table {name}; did you mean {lower}?") from error
            raise WrongUse(
                f"the Iceberg catalog has no table {name}; does its table file say `iceberg: true`, and has "
                "`prism iceberg publish` run?"
            ) from error

    def _place(self, name: str) -> tuple[str, str]:
        """Returns the catalog's namespace and table name."""
        schema, _, table = name.partition(".")
        if not (schema and table):
            raise WrongUse(f"{name or 'nothing'} is not the name of a table: write schema.table")
        prefix, suffix = self._settings.glue_database_prefix, self._settings.iceberg_database_suffix
        return f"{prefix}{schema}{suffix}", table

    def schemas(self) -> Iterator[tuple[str, pa.Schema]]:
        """Yields name and columns of each Iceberg table of the lake. Names are `schema.table`, without prefix and
        suffix.
        """
        prefix, suffix = self._settings.glue_database_prefix, self._settings.iceberg_database_suffix
        for (namespace,) in (found for found in self.catalog.list_namespaces() if len(found) == 1):
            if namespace.startswith(prefix) and namespace.endswith(suffix):
                schema = namespace.removeprefix(prefix).removesuffix(suffix)
                for _, table in self.catalog.list_tables(namespace):
                    yield f"{schema}.{table}", self.table(f"{schema}.{table}").schema().as_arrow()

    def rows(self, name: str) -> pa.Table:
        """Reads all rows of a table into memory, with the column `dt`."""
        return self.table(name).scan().to_arrow()


def catalog_properties(settings: Settings) -> dict[str, Any]:
    """Returns PyIceberg's properties for the catalog and its files."""
    properties = _catalog(settings)
    if settings.local_root is not None:
        return {**properties, "py-io-impl": f"{__name__}.{LocalFileIO.__name__}", _ROOT: settings.local_root}
    if settings.s3_endpoint:
        properties["s3.endpoint"] = settings.s3_endpoint
    return {**properties, "s3.region": settings.region}


def _catalog(settings: Settings) -> dict[str, Any]:
    match settings.iceberg_catalog:
        case "glue":
            return {"type": "glue", "glue.endpoint": settings.glue_endpoint, "glue.region": settings.region}
        case "rest":
            secrets = {"credential": settings.iceberg_rest_credential, "token": settings.iceberg_rest_token}
            return {
                "type": "rest",
                "uri": settings.iceberg_rest_uri,
                **({"warehouse": settings.iceberg_rest_warehouse} if settings.iceberg_rest_warehouse else {}),
                **{name: secret.get_secret_value() for name, secret in secrets.items() if secret},
            }
        case "sql":
            url = url_with_password(settings.database_url.get_secret_value())
            return {"type": "sql", "uri": url, "init_catalog_tables": "false"}
