"""A REST catalog of Iceberg tables: the part of the specification used by the platform, with conflicts."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io import FileIO
from pyiceberg.serializers import FromInputFile, ToOutputFile
from pyiceberg.table import CommitTableRequest
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import update_table_metadata


class RestCatalogServer:
    """Keeps names in memory, and metadata files where the tables are. Handles one request at a time.

    `before_answer` is called after a commit and before its answer: a test may let it raise, or wait.
    """

    def __init__(self, files: FileIO) -> None:
        self.files = files
        self.namespaces: set[str] = set()
        self.tables: dict[tuple[str, str], str] = {}
        self.lock = threading.Lock()
        self.refuses_with: int | None = None

    def metadata(self, name: tuple[str, str]) -> TableMetadata:
        """Returns the current metadata of a table."""
        return FromInputFile.table_metadata(self.files.new_input(self.tables[name]))

    def answer(self, method: str, path: list[str], body: Any) -> tuple[int, Any]:
        """Status and document."""
        if self.refuses_with:
            return _error(self.refuses_with, "refused")
        match method, path:
            case "GET", ["config"]:
                return 200, {"defaults": {}, "overrides": {}}
            case "POST", ["namespaces"]:
                return self._create_namespace(body["namespace"][0])
            case "POST", ["namespaces", namespace, "register"]:
                return self._register((namespace, body["name"]), body["metadata-location"])
            case (("GET" | "HEAD"), ["namespaces", namespace, "tables", table]):
                return self._load((namespace, table))
            case "DELETE", ["namespaces", namespace, "tables", table]:
                return (204, None) if self.tables.pop((namespace, table), None) else _error(404, "NoSuchTable")
            case "POST", ["namespaces", namespace, "tables", table]:
                return self._commit((namespace, table), CommitTableRequest.model_validate(body))
        return _error(404, f"{method} {'/'.join(path)}")

    def _create_namespace(self, namespace: str) -> tuple[int, Any]:
        if namespace in self.namespaces:
            return _error(409, "AlreadyExists")
        self.namespaces.add(namespace)
        return 200, {"namespace": [namespace], "properties": {}}

    def _register(self, name: tuple[str, str], location: str) -> tuple[int, Any]:
        if name in self.tables:
            return _error(409, "AlreadyExists")
        self.tables[name] = location
        return self._load(name)

    def _load(self, name: tuple[str, str]) -> tuple[int, Any]:
        if name not in self.tables:
            return _error(404, "NoSuchTable")
        document = json.loads(self.metadata(name).model_dump_json())
        return 200, {"metadata-location": self.tables[name], "metadata": document, "config": {}}

    def _commit(self, name: tuple[str, str], request: CommitTableRequest) -> tuple[int, Any]:
        if name not in self.tables:
            return _error(404, "NoSuchTable")
        base = self.metadata(name)
        try:
            for requirement in request.requirements:
                requirement.validate(base)
        except CommitFailedException as error:
            return _error(409, str(error))
        after = update_table_metadata(base, request.updates, metadata_location=self.tables[name])
        location = f"{after.location}/metadata/{len(after.metadata_log):05}-{uuid.uuid4()}.metadata.json"
        ToOutputFile.table_metadata(after, self.files.new_output(location))
        self.tables[name] = location
        return self._load(name)


def _error(status: int, message: str) -> tuple[int, Any]:
    return status, {"error": {"message": message, "type": f"{message.split()[0]}Exception", "code": status}}


@contextmanager
def served(catalog: RestCatalogServer) -> Iterator[str]:
    """Serves a catalog on a free port of this machine. Yields its address."""

    class Handler(BaseHTTPRequestHandler):
        def _handle(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            path = [unquote(part) for part in self.path.partition("?")[0].strip("/").split("/")[1:]]
            with catalog.lock:
                status, document = catalog.answer(self.command, path, body)
            content = b"" if document is None or self.command == "HEAD" else json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_DELETE = do_HEAD = _handle  # noqa: N815  # as the base class calls them

        def log_message(self, *_: Any) -> None:
            """Prints nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
