"""The catalogs that name Iceberg tables: PostgreSQL, Glue or a REST server, through the library's clients.

Their files go through the lake's own store, whatever the properties of a table say: those may be set by strangers, and
name a class to be loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io import FileIO
from pyiceberg.typedef import EMPTY_DICT, Properties
from sqlalchemy import NullPool, create_engine  # noqa: TID251  # the library's catalog in PostgreSQL uses it

from prism_assets.objectstore.stores import Stores
from prism_assets.publishers.iceberg.file_io import STORES, StoresFileIO

CATALOG = "prism"
"""The name under which a catalog in PostgreSQL keeps the tables; readers are given it, too."""
_FILES = f"{StoresFileIO.__module__}.{StoresFileIO.__qualname__}"
_SESSION = "-c lock_timeout=30s -c statement_timeout=60s -c idle_in_transaction_session_timeout=60s"


class _Postgres(SqlCatalog):
    def __init__(self, name: str, **properties: Any) -> None:
        super().__init__(name, **properties)
        # A connection for each statement: those of a pool are dead after a quiet night, and nobody would close them.
        self.engine.dispose()
        self.engine = create_engine(properties["uri"], poolclass=NullPool)

    def _load_file_io(self, properties: Properties = EMPTY_DICT, location: str | None = None) -> FileIO:
        return super()._load_file_io(EMPTY_DICT, location)


def postgres_catalog(url: str, stores: Stores) -> Callable[[], Catalog]:
    """Connects to the catalog in the platform's own database, whose tables `prism table apply` made."""

    def connect() -> Catalog:
        between = "&" if "?" in url else "?"
        address = f"{url}{between}connect_timeout=5&options={_SESSION.replace(' ', '%20').replace('=', '%3D')}"
        properties = {"uri": address, "init_catalog_tables": "false", "py-io-impl": _FILES}
        return _Postgres(CATALOG, **properties, **{STORES: stores})

    return connect
