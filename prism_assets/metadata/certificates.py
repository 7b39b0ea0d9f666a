"""Why the certificate of a PostgreSQL server was not accepted. libpq names no cause, so a second look does."""

from __future__ import annotations

import os
import re
import socket
import ssl
import struct
from pathlib import Path

import sqlalchemy

_SSL_REQUEST = struct.pack("!II", 8, 80877103)
_SECONDS = 5.0
_CAUSES = (
    (
        r"expired",
        "its certificate has expired: renew it on the server",
    ),
    (r"not yet valid", "its certificate is not yet valid: check the clocks of both machines"),
    (
        r"self.signed|unable to get|unknown ca|signature failure",
        "its certificate comes from an authority that sslrootcert does not hold: add that authority",
    ),
    (
        r"match|Hostname|IP address",
        "its certificate is for another host: correct the host in PRISM_DATABASE_URL",
    ),
    (r"root certificate file", "name the file of the authorities by sslrootcert, or by PGSSLROOTCERT"),
)
_ADDRESS = re.compile(r"[\d.]+|.*:.*")


def why_rejected(url: sqlalchemy.URL, sentence: str) -> str:
    """Returns the cause and the remedy for a sentence of libpq about a certificate. Asks the server again at most once."""
    if "verify failed" in sentence:
        sentence = f"{sentence}; {_verified_again(url)}"
    for words, remedy in _CAUSES:
        if re.search(words, sentence):
            return f"{sentence.partition(';')[0]}; {remedy}"
    return f"{sentence}; check sslmode and sslrootcert of PRISM_DATABASE_URL"


def _verified_again(url: sqlalchemy.URL) -> str:
    """Returns OpenSSL's own reason, by a connection that ends before any login."""
    roots = _option(url, "sslrootcert") or os.environ.get("PGSSLROOTCERT") or "~/.postgresql/root.crt"
    host = _option(url, "host") or url.host or "localhost"
    try:
        context = ssl.create_default_context(cafile=None if roots == "system" else str(Path(roots).expanduser()))
        context.check_hostname = False
        with socket.create_connection((host, url.port or 5432), timeout=_SECONDS) as plain:
            plain.sendall(_SSL_REQUEST)
            if plain.recv(1) != b"S":
                return ""
            context.wrap_socket(plain, server_hostname=None if _ADDRESS.fullmatch(host) else host).close()
    except ssl.SSLCertVerificationError as error:
        return error.verify_message
    except (OSError, ValueError):
        return ""
    return ""


def _option(url: sqlalchemy.URL, name: str) -> str | None:
    given = url.query.get(name)
    return given if isinstance(given, str) else None
