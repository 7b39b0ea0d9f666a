"""TLS before the PostgreSQL of the tests, whose programs have none, and certificates for it.

A front answers the client's request for TLS with its certificate, and hands the bytes on to the server.
"""

from __future__ import annotations

import datetime
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_REQUEST_BYTES = 8
_NOW = datetime.datetime.now(datetime.timezone.utc)


@dataclass(frozen=True)
class Authority:
    """An authority that signs certificates. `file` is for clients who trust it."""

    name: x509.Name
    key: ec.EllipticCurvePrivateKey
    file: Path

    @classmethod
    def create(cls, folder: Path, name: str) -> Authority:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate = (
            _builder(subject, subject, key, days=10)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(key, hashes.SHA256())
        )
        file = folder / f"{name}.crt"
        file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        return cls(subject, key, file)

    def certificate(self, host: str, *, days: int = 5) -> Path:
        """Returns a file with a key and a certificate for a host. It has expired if `days` is negative."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
        is_address = host[0].isdigit()
        named = x509.IPAddress(ip_address(host)) if is_address else x509.DNSName(host)
        certificate = (
            _builder(subject, self.name, key, days=days)
            .add_extension(x509.SubjectAlternativeName([named]), critical=False)
            .sign(self.key, hashes.SHA256())
        )
        file = self.file.with_name(f"{host}.{days}.{self.file.stem}.pem")
        file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
            + certificate.public_bytes(serialization.Encoding.PEM)
        )
        return file


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, *, days: int
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_NOW - datetime.timedelta(days=20))
        .not_valid_after(_NOW + datetime.timedelta(days=days))
    )


@contextmanager
def tls_front(server: tuple[str, int], certificate: Path) -> Iterator[int]:
    """Yields the port of a front with this certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)

    def serve(client: socket.socket) -> None:
        with suppress(OSError), client:
            client.recv(_REQUEST_BYTES, socket.MSG_WAITALL)
            client.sendall(b"S")
            with context.wrap_socket(client, server_side=True) as inside, socket.create_connection(server) as plain:
                back = threading.Thread(target=_copy, args=(plain, inside), daemon=True)
                back.start()
                _copy(inside, plain)
                back.join()

    def accept() -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                threading.Thread(target=serve, args=(client,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def _copy(source: socket.socket, target: socket.socket) -> None:
    """Hands on what arrives until one side is gone, and ends the other side."""
    with suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)
