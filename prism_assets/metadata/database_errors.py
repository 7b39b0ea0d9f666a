"""Translates errors of PostgreSQL, of a pooler and of the network into the error tree."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy
from sqlalchemy.exc import DBAPIError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from prism_assets.domain.errors import DatabaseUnavailable, InvariantBroken, OldSchema, TerminalError
from prism_assets.metadata.certificates import why_rejected
from prism_assets.metadata.session_holders import describe_holders
from prism_assets.secret_references import secrets_seen
from prism_assets.unreachable import how_to_reach

_SETTING = "PRISM_DATABASE_URL"
_TRANSIENT_STATES = (
    "40001",
    "40P01",
    "57014",
    "57P01",
    "57P02",
    "57P03",
    "57P05",
    "53300",
    "25P03",
    "25P04",
    "25006",
    "55P03",
    "08",
)
_ENDED = {
    "25P03": "ended this session, which stood still in a transaction for longer than idle_in_transaction_session_timeout",
    "25P04": "ended this session, whose transaction took longer than transaction_timeout",
    "57P05": "ended this session, which was silent for longer than idle_session_timeout: its process stood still",
    "57P01": "ended this session: an administrator terminated it, or the server is being stopped",
    "57P02": "ended all sessions, as one of its processes crashed",
    "57P03": "takes no sessions now: it is starting or being stopped",
    "25006": "takes no changes, as a standby does: check that PRISM_DATABASE_URL names the primary",
}
_NO_ROOM = ("too many clients", "too many connections", "connection slots are reserved")
"""Recognized by words, because a refused session has no SQLSTATE."""
_LATER = (*_NO_ROOM, "starting up", "shutting down", "recovery mode", "not yet accepting connections")
_REFUSALS = (
    (
        r"no pg_hba\.conf entry|pg_hba\.conf rejects",
        f"let this user in there, or ask for TLS by ?sslmode=require in {_SETTING}, or leave it out",
    ),
    (
        r"PAM authentication failed",
        "grant rds_iam to the user, and rds-db:connect to the role; tokens of RDS need TLS",
    ),
    (
        r"authentication failed|no password supplied|password is empty|role .* (does not exist|is not permitted)"
        r"|no such user|authentication method",
        f"check user and password in {_SETTING} and PRISM_DATABASE_PASSWORD",
    ),
    (r"database .* does not exist|no such database", f"create it, or correct the name in {_SETTING}"),
    (
        r"startup parameter|command.line options",
        f"take the options out of {_SETTING}: a pooler does not pass them on",
    ),
    (
        r"invalid response to SSL negotiation|expected authentication request",
        "no PostgreSQL answers there: check the port",
    ),
    (r"SSL|TLS|certificate|channel binding", f"check sslmode and the certificates in {_SETTING}"),
    (r"permission denied", "grant the right to connect"),
    (r"statement pooling", "set pool_mode of the pooler to transaction or session"),
)
"""Sentences of servers that refuse every session until somebody acts, each with advice."""
_REJECTED = re.compile(r"certificate verify failed|does not match host name|root certificate file", re.IGNORECASE)
"""Words of libpq where this side refuses the server."""
_SAID = re.compile(r"(?:FATAL|PANIC|ERROR):\s+(.+)")
_PLACE = re.compile(r"^.*connection to server at .+?, port \d+ failed: |^connection (?:failed|is bad): ")


@contextmanager
def translated(url: sqlalchemy.URL, *, most_sessions: int) -> Iterator[None]:
    """Translates all errors of the driver and its pool into the error tree. Messages never contain the password."""
    try:
        yield
    except PoolTimeout as error:
        raise DatabaseUnavailable(
            f"all {most_sessions} database sessions of this process are in use; repeat"
        ) from error
    except DBAPIError as error:
        raise _named(error, url) from error
    except SQLAlchemyError as error:
        raise TerminalError(f"PostgreSQL: {_first_line(error)}") from error


def _named(error: DBAPIError, url: sqlalchemy.URL) -> Exception:
    state = getattr(error.orig, "sqlstate", None) or ""
    where = f"PostgreSQL at {url.host}:{url.port or 5432}"
    message = _without_password(_first_line(error.orig), url)
    if state == "42P01":
        return OldSchema("the database has no prism tables of this version yet: run `prism table apply` first")
    if state == "42703":
        return OldSchema("the database has the tables of an older version: run `prism table apply` first")
    if state.startswith(("22", "23")):
        return InvariantBroken(f"PostgreSQL refused an inconsistent change: {message}")
    if state == "53300":
        return _no_room(where, url)
    if state in _ENDED:
        return DatabaseUnavailable(f"{where} {_ENDED[state]}; nothing is half done, repeat")
    if advice := _advice(message) if state.startswith("08") else None:
        return TerminalError(f"{where} refuses: {message}; {advice}")
    if state.startswith(_TRANSIENT_STATES):
        return DatabaseUnavailable(f"{where} interrupted the work ({message}); it is safe to repeat")
    if error.connection_invalidated:
        return DatabaseUnavailable(f"the connection to {where} was cut in the middle; nothing is half done, repeat")
    if isinstance(error, OperationalError):
        return _not_connected(_without_password(str(error.orig), url), where, url)
    if error.statement is None:
        return TerminalError(f"{_SETTING} is wrong: {message}")
    return TerminalError(f"PostgreSQL: {message}")


def _not_connected(told: str, where: str, url: sqlalchemy.URL) -> Exception:
    """Distinguishes a server that refuses a session, by its own sentence, from an absent one.

    A host may have several addresses, and the driver quotes each. The one that answered is the most informative.
    """
    said = "; ".join(dict.fromkeys(sentence.strip() for sentence in _SAID.findall(told)))
    if any(words in said for words in _NO_ROOM):
        return _no_room(where, url)
    sentence = said or _PLACE.sub("", told.strip().splitlines()[0]).strip()
    if "resolve host" in sentence or "translate host name" in sentence:
        return DatabaseUnavailable(f"the host {url.host} is not known: check {_SETTING}, or repeat later")
    if not said and _REJECTED.search(sentence):
        return TerminalError(f"{where} was not trusted, and no password was sent: {why_rejected(url, sentence)}")
    later = any(words in sentence for words in _LATER)
    if not later and (advice := _advice(sentence)):
        return TerminalError(f"{where} refuses user {url.username}: {sentence}; {advice}")
    if said:
        return DatabaseUnavailable(
            f"{where} takes no sessions: {said}; repeat later, and look there if that does not help"
        )
    remedy = how_to_reach(f"{url.host}:{url.port or 5432}", _SETTING)
    return DatabaseUnavailable(f"{where} does not answer ({sentence}): {remedy}, then repeat")


def _no_room(where: str, url: sqlalchemy.URL) -> Exception:
    return DatabaseUnavailable(
        f"{where} has no session left: {describe_holders(url)}; end what should not hold them, or raise max_connections; "
        "nothing is half done, repeat"
    )


def _advice(sentence: str) -> str | None:
    return next((advice for words, advice in _REFUSALS if re.search(words, sentence)), None)


def _without_password(text: str, url: sqlalchemy.URL) -> str:
    for secret in sorted({str(url.password or ""), *secrets_seen()} - {""}, key=len, reverse=True):
        text = text.replace(secret, "…")
    return text


def _first_line(error: BaseException | None) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
