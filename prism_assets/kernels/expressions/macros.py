"""Functions for table files beyond DuckDB's own, one line of SQL each."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

_BLOCK = 64
"""SHA-256's block size in bytes. RFC 2104 pads keys to this length."""


def _floored(nanoseconds: int) -> str:
    """Returns SQL for a `moment` in units of `nanoseconds` since the epoch, rounded down. Null for types without
    nanoseconds.

    A cast to TIMESTAMP, the first step of DuckDB's own functions, would round to the nearest microsecond.
    """
    whole = "epoch_ns(TRY_CAST(moment AS TIMESTAMP_NS))"
    floor = f"{whole} // {nanoseconds} - CAST({whole} % {nanoseconds} < 0 AS BIGINT)"
    return f"CASE WHEN typeof(moment) = 'TIMESTAMP_NS' THEN {floor} END"


SECRET_RULE = "the second argument of pseudonym is the name of a secret such as 'mail', for PRISM_SECRET_MAIL"

MACROS = {
    "pseudonym": (
        "pseudonym(value, secret) AS sha256(getvariable('prism_' || secret || '_outer') || "
        "unhex(sha256(getvariable('prism_' || secret || '_inner') || encode(CAST(value AS VARCHAR)))))"
    ),
    "mask": (
        "mask(value, shown) AS CASE WHEN length(value) > shown AND shown >= 0 "
        "THEN repeat('*', length(value) - shown) || right(value, shown) ELSE repeat('*', length(value)) END"
    ),
    "url_host": (
        "url_host(url) AS nullif(lower(regexp_extract(url, "
        r"'^(?:[A-Za-z][A-Za-z0-9+.-]*:)?//(?:[^/?#@]*@)?(\[[^\]/?#]*\]|[^:/?#]*)', 1)), '')"
    ),
    "url_param": (
        "url_param(url, name) AS url_decode(replace(regexp_extract_all(regexp_extract(url, '[?]([^#]*)', 1), "
        "'(?:^|&)' || regexp_escape(name) || '=([^&]*)', 1)[1], '+', ' '))"
    ),
    "ip_net": (
        "ip_net(ip, bits) AS CASE WHEN regexp_full_match(ip, '[0-9]{1,3}([.][0-9]{1,3}){3}') AND bits BETWEEN 0 AND 32 "
        "THEN array_to_string(list_transform([24, 16, 8, 0], lambda shift: ((list_reduce(CAST(CAST(string_split(ip, "
        "'.') AS UTINYINT[]) AS BIGINT[]), lambda high, low: high * 256 + low) >> (32 - bits) << (32 - bits)) >> shift)"
        " & 255), '.') || '/' || bits END"
    ),
    "unix_ms": (
        f"unix_ms(moment) AS coalesce({_floored(1_000_000)}, "
        "epoch_ms(date_trunc('milliseconds', CAST(moment AS TIMESTAMP))))"
    ),
    "at_offset": (
        f"at_offset(moment, distance) AS coalesce(make_timestamp({_floored(1_000)}), CAST(moment AS TIMESTAMP)) + "
        "to_minutes(CAST(distance[1] || '1' AS INTEGER) * (CAST(distance[2:3] AS INTEGER) * 60 + "
        "CAST(distance[5:6] AS INTEGER)))"
    ),
}
"""The macros by name. `prism_<secret>_inner` and `_outer` are variables of the connection: see `variables`."""


def variables(secret: str, key: str) -> Iterator[tuple[str, bytes]]:
    """Yields the variables of a secret for `pseudonym`: the HMAC-SHA-256 key of both passes."""
    content = key.encode()
    content = (hashlib.sha256(content).digest() if len(content) > _BLOCK else content).ljust(_BLOCK, b"\0")
    for name, padding in (("inner", 0x36), ("outer", 0x5C)):
        yield f"prism_{secret}_{name}", bytes(byte ^ padding for byte in content)
