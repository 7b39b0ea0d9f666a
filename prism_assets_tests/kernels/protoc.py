"""Descriptor sets and messages as protobuf's own compiler makes them."""

from __future__ import annotations

import base64
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from prism_assets.domain.streams.stream import ProtobufFormat, Stream

PROTOS = Path(__file__).parent / "protos"


@cache
def descriptor_set(proto: str) -> bytes:
    """Returns the output of `protoc --include_imports --descriptor_set_out` for a file of `protos/`."""
    with TemporaryDirectory() as folder:
        out = Path(folder) / "out.desc"
        _protoc("--include_imports", f"--descriptor_set_out={out}", proto)
        return out.read_bytes()


@cache
def encoded(proto: str, message: str, text: str) -> bytes:
    """Returns one message in the encoding of `protoc --encode`, given in protobuf's text format."""
    return _protoc(f"--encode={message}", proto, given=text.encode())


def _protoc(*arguments: str, given: bytes = b"") -> bytes:
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{PROTOS}", f"-I{_well_known_types()}", *arguments]
    done = subprocess.run(command, input=given, capture_output=True, timeout=600)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def _well_known_types() -> Path:
    import grpc_tools

    return Path(grpc_tools.__path__[0]) / "_proto"


def framed(messages: Iterable[bytes]) -> bytes:
    """Returns messages, each after its length as a varint."""
    return b"".join(varint(len(message)) + message for message in messages)


def varint(number: int) -> bytes:
    parts = bytearray()
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*parts, number])


def a_format(proto: str, message: str) -> ProtobufFormat:
    return ProtobufFormat(message=message, descriptor_set=base64.b64encode(descriptor_set(proto)).decode())


def a_stream(proto: str, message: str) -> Stream:
    """Returns a stream of the objects made by the builders of kernels."""
    return Stream(name="pv_log", bucket="staging", key_prefix="in/", format=a_format(proto, message))
