"""A Glue server for tests: moto's catalog behind a thin front, five times as fast as moto's own, with faults on
request.

The answers are moto's. The front serves one account and region, keeps connections open, and applies a `GlueFault` to
matching calls: throttles them, loses answers, delays calls until their caller is long gone.
"""

from __future__ import annotations

import copy
import json
import socket
import threading
from dataclasses import dataclass, field
from datetime import datetime
from http.server import BaseHTTPRequestHandler
from typing import Any, Literal

from moto.core.exceptions import ServiceException
from moto.core.utils import camelcase_to_underscores
from moto.glue.models import glue_backends
from moto.glue.responses import GlueResponse
from werkzeug.exceptions import HTTPException

from prism_assets_tests.faults.http import QuietServer
from prism_local.moto_server import VersionedGlue

_ACCOUNT, _REGION = "123456789012", "us-east-1"
_COPIED = ("databases", "table_optimizers")

Kind = Literal["throttled", "refused", "lost", "late", "cut", "ignored", "wrong entry"]


@dataclass
class GlueFault:
    """A fault of the next `times` calls of one operation, after the first `skip` of them.

    `throttled`: ThrottlingException, no effect. `refused`: a server error, no effect. `lost`: done, but the connection
    breaks before the answer. `cut`: no effect, the connection breaks. `late`: the connection breaks, and `land`
    executes the call. `ignored`: no effect, but the answer claims success. `wrong entry`: done except for the last
    partition, which the answer names as failed.
    """

    operation: str
    kind: Kind
    times: int = 1
    skip: int = 0
    injected: int = 0
    held: list[tuple[str, bytes]] = field(default_factory=list)


class GlueServer:
    """One catalog in memory on a port of loopback. `faults` may be changed at any time."""

    def __init__(self, glue: type[GlueResponse] = VersionedGlue) -> None:
        self._glue = glue
        self.faults: list[GlueFault] = []
        self.calls: list[str] = []
        self._lock = threading.Lock()
        self._server = QuietServer(_handler_of(self))

    @property
    def endpoint(self) -> str:
        """The address for clients."""
        return self._server.endpoint

    def clear(self) -> None:
        """Forgets all databases, faults and calls."""
        with self._lock:
            glue_backends[_ACCOUNT][_REGION].reset()
            self.faults.clear()
            self.calls.clear()

    def copy(self) -> Any:
        """Returns a copy of all databases, for `put_back`."""
        with self._lock:
            held = vars(glue_backends[_ACCOUNT][_REGION])
            return copy.deepcopy({name: held[name] for name in _COPIED if name in held})

    def put_back(self, copied: Any) -> None:
        """Has what a copy holds again, after `clear`."""
        with self._lock:
            vars(glue_backends[_ACCOUNT][_REGION]).update(copy.deepcopy(copied))

    def close(self) -> None:
        """Stops listening."""
        self._server.close()

    def land(self, fault: GlueFault) -> None:
        """Executes the calls delayed by a late fault, in order."""
        while fault.held:
            self.apply(*fault.held.pop(0))

    def apply(self, operation: str, body: bytes) -> tuple[int, bytes]:
        """Does one call and returns status and answer, as moto gives them."""
        with self._lock:
            response = self._glue()
            response.body, response.region, response.current_account = body, _REGION, _ACCOUNT
            response.querystring = {}
            try:
                result = getattr(response, camelcase_to_underscores(operation))()
            except ServiceException as error:
                return 400, _encoded({"__type": error.code, "message": error.message})
            except HTTPException as error:
                return error.code or 400, str(error.description).encode()
        return 200, result.encode() if isinstance(result, str) else _encoded(result.result or {})

    def answer(self, operation: str, body: bytes) -> tuple[int, bytes] | None:
        """Executes one call, with its fault if any. None breaks the connection."""
        fault = self._fault_of(operation)
        if fault is None:
            return self.apply(operation, body)
        if fault.kind == "throttled":
            return 400, _encoded({"__type": "ThrottlingException", "message": "Rate exceeded"})
        if fault.kind == "refused":
            return 500, _encoded({"__type": "InternalServiceException", "message": "We failed"})
        if fault.kind == "ignored":
            return 200, b"{}"
        if fault.kind == "wrong entry":
            return self._all_but_one(operation, json.loads(body))
        if fault.kind == "late":
            fault.held.append((operation, body))
        elif fault.kind == "lost":
            self.apply(operation, body)
        return None

    def _fault_of(self, operation: str) -> GlueFault | None:
        with self._lock:
            self.calls.append(operation)
            for fault in self.faults:
                if fault.operation != operation or fault.times == 0:
                    continue
                if fault.skip:
                    fault.skip -= 1
                    continue
                fault.times -= 1
                fault.injected += 1
                return fault
        return None

    def _all_but_one(self, operation: str, call: Any) -> tuple[int, bytes]:
        """Batch calls answer 200 and tell of single partitions among them."""
        name = "Entries" if operation == "BatchUpdatePartition" else "PartitionInputList"
        left = call[name].pop()
        status, body = self.apply(operation, _encoded(call)) if call[name] else (200, b"{}")
        answer = json.loads(body or b"{}")
        values = left.get("PartitionValueList") or left["Values"]
        key = "PartitionValueList" if operation == "BatchUpdatePartition" else "PartitionValues"
        detail = {"ErrorCode": "InternalServiceException", "ErrorMessage": "We failed"}
        answer.setdefault("Errors", []).append({key: values, "ErrorDetail": detail})
        return status, _encoded(answer)


def _handler_of(server: GlueServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = 1 << 16

        def setup(self) -> None:
            super().setup()
            self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            answer = server.answer(self.headers["X-Amz-Target"].rpartition(".")[2], body)
            if answer is None:
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            status, content = answer
            self.send_response(status)
            self.send_header("Content-Type", "application/x-amz-json-1.1")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            """Silent."""

    return Handler


def _encoded(value: Any) -> bytes:
    return json.dumps(value, default=_as_json).encode()


def _as_json(value: Any) -> Any:
    return value.timestamp() if isinstance(value, datetime) else str(value)
