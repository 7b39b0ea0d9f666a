"""The catalogs for Iceberg tables: PostgreSQL, Glue or a REST server, through PyIceberg's clients.

Metadata files always go through the lake's own store. Table properties are ignored there, because strangers may set
them, and they can name a class to load. Every client has timeouts: the caller keeps a heartbeat while it publishes.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.glue import GlueCatalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io import FileIO
from pyiceberg.typedef import EMPTY_DICT, Properties
from requests import Session
from sqlalchemy import Engine, make_url  # noqa: TID251  # the library's catalog in PostgreSQL uses it

from prism_assets.aws_clients import Patience, aws_client
from prism_assets.kept import Kept
from prism_assets.objectstore.stores import Stores
from prism_assets.postgres import create_engine
from prism_assets.publishers.iceberg.file_io import STORES, StoresFileIO
from prism_assets.settings import Settings

CATALOG = "prism"
"""The catalog's name in PostgreSQL. Readers use it, too."""
_CONNECT_SECONDS, _ANSWER_SECONDS, _STATEMENT_SECONDS = 5, 30, 60
SESSIONS_KEPT, MOST_SESSIONS = 1, 8
"""PostgreSQL sessions of one process for its catalog: kept between calls, and open at most at once."""


class _OwnFiles(Catalog):
    """Reads and writes through the given stores, whatever the table's properties say."""

    def _load_file_io(self, properties: Properties = EMPTY_DICT, location: str | None = None) -> FileIO:
        return StoresFileIO(self.properties)


class _Postgres(_OwnFiles, SqlCatalog):
    def _init_catalog(self) -> None:
        # PyIceberg has made an engine, which has opened no connection yet. Each sensor tick makes a catalog, so the
        # engine is shared.
        uri = self.properties["uri"]
        self.engine = ENGINES.get(uri, partial(_engine, uri))
        super()._init_catalog()


ENGINES: Kept[str, Engine] = Kept(Engine.dispose)
"""This process's engines for catalogs in PostgreSQL, by address."""


def _engine(uri: str) -> Engine:
    settings = {"statement_timeout": f"{_STATEMENT_SECONDS}s"}
    return create_engine(make_url(uri), kept=SESSIONS_KEPT, most=MOST_SESSIONS, settings=settings)


class _Glue(_OwnFiles, GlueCatalog):
    pass


class _Rest(_OwnFiles, RestCatalog):
    def _create_session(self) -> Session:
        session: Session = super()._create_session()
        session.request = partial(session.request, timeout=(_CONNECT_SECONDS, _ANSWER_SECONDS))  # type: ignore[method-assign]
        # This assignment makes the session refer to itself. The finalizer closes its connections with the catalog,
        # without waiting for the cycle collector.
        weakref.finalize(self, session.close)
        return session


def iceberg_catalog(settings: Settings, stores: Stores) -> Callable[[], Catalog]:
    """Returns a function that connects to the catalog named in the settings."""
    match settings.iceberg_catalog:
        case "sql":
            return partial(_postgres, settings.database_url.get_secret_value(), stores)
        case "glue":
            return partial(_glue, settings, stores)
        case "rest":
            return partial(_rest, settings, stores)


def _postgres(url: str, stores: Stores) -> Catalog:
    """Connects to the catalog in the platform's own database. A migration creates its tables."""
    properties: dict[str, Any] = {
        "uri": url,
        "init_catalog_tables": "false",
        "py-io-impl": f"{StoresFileIO.__module__}.{StoresFileIO.__qualname__}",
        STORES: stores,
    }
    return _Postgres(CATALOG, **properties)


def _glue(settings: Settings, stores: Stores) -> Catalog:
    patience = Patience(3, connect_seconds=_CONNECT_SECONDS, read_seconds=_ANSWER_SECONDS)
    client = aws_client("glue", settings.glue_endpoint, settings.region, patience)
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
