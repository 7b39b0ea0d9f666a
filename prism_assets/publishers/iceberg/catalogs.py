"""The catalogs that name Iceberg tables: PostgreSQL, Glue or a REST server, through the library's clients.

Their files go through the lake's own store, whatever the properties of a table say: those may be set by strangers, and
name a class to be loaded. No client waits for ever: who publishes a table shows meanwhile that it lives.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import boto3
from botocore.config import Config
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.glue import GlueCatalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io import FileIO
from pyiceberg.typedef import EMPTY_DICT, Properties
from requests import Session
from sqlalchemy import create_engine, make_url  # noqa: TID251  # the library's catalog in PostgreSQL uses it

from prism_assets.objectstore.stores import Stores
from prism_assets.publishers.iceberg.file_io import STORES, StoresFileIO
from prism_assets.settings import Settings

CATALOG = "prism"
"""The name under which a catalog in PostgreSQL keeps the tables; readers are given it, too."""
_CONNECT_SECONDS, _ANSWER_SECONDS = 5, 30
_SESSION = "-c lock_timeout=30s -c statement_timeout=60s -c idle_in_transaction_session_timeout=60s"


class _OwnFiles(Catalog):
    """Reads and writes through the stores that it was given, whatever a table says."""

    def _load_file_io(self, properties: Properties = EMPTY_DICT, location: str | None = None) -> FileIO:
        return StoresFileIO(self.properties)


class _Postgres(_OwnFiles, SqlCatalog):
    def __init__(self, name: str, **properties: Any) -> None:
        super().__init__(name, **properties)
        # One connection is kept, as each of the half a dozen calls for a table asks for one. It ends with the catalog.
        self.engine.dispose()
        self.engine = create_engine(properties["uri"], pool_size=1, max_overflow=-1, pool_pre_ping=True)
        weakref.finalize(self, self.engine.dispose)


class _Glue(_OwnFiles, GlueCatalog):
    pass


class _Rest(_OwnFiles, RestCatalog):
    def _create_session(self) -> Session:
        session: Session = super()._create_session()
        session.request = partial(session.request, timeout=(_CONNECT_SECONDS, _ANSWER_SECONDS))  # type: ignore[method-assign]
        return session


def iceberg_catalog(settings: Settings, stores: Stores) -> Callable[[], Catalog]:
    """Connects to the catalog that the settings name, when it is called."""
    match settings.iceberg_catalog:
        case "sql":
            return partial(_postgres, settings.database_url.get_secret_value(), stores)
        case "glue":
            return partial(_glue, settings, stores)
        case "rest":
            return partial(_rest, settings, stores)


def _postgres(url: str, stores: Stores) -> Catalog:
    """The catalog in the platform's own database, whose tables a migration made."""
    address = make_url(url).update_query_dict({"connect_timeout": str(_CONNECT_SECONDS), "options": _SESSION})
    return _Postgres(
        CATALOG,
        **{
            "uri": address.render_as_string(hide_password=False),
            "init_catalog_tables": "false",
            "py-io-impl": f"{StoresFileIO.__module__}.{StoresFileIO.__qualname__}",
            STORES: stores,
        },
    )


def _glue(settings: Settings, stores: Stores) -> Catalog:
    retries: Any = {"mode": "standard", "total_max_attempts": 3}
    config = Config(retries=retries, connect_timeout=_CONNECT_SECONDS, read_timeout=_ANSWER_SECONDS)
    client = boto3.client("glue", endpoint_url=settings.glue_endpoint, region_name=settings.region, config=config)
    return _Glue(CATALOG, client=client, **{STORES: stores})


def _rest(settings: Settings, stores: Stores) -> Catalog:
    properties: dict[str, Any] = {"uri": settings.iceberg_rest_uri, STORES: stores}
    if settings.iceberg_rest_warehouse:
        properties["warehouse"] = settings.iceberg_rest_warehouse
    if settings.iceberg_rest_credential:
        properties["credential"] = settings.iceberg_rest_credential.get_secret_value()
    if settings.iceberg_rest_token:
        properties["token"] = settings.iceberg_rest_token.get_secret_value()
    return _Rest(CATALOG, **properties)
