"""Sentences about servers that do not answer: what happened, and what the reader can do."""

from __future__ import annotations

from prism_assets.local_stack import is_local


def how_to_reach(address: str, setting: str) -> str:
    """Advice about a server at a URL or `host:port` that does not answer. `setting` is the variable that names it."""
    if is_local(address):
        return "start it (`prism local up`)"
    return check_address(setting)


def check_address(setting: str) -> str:
    """Advice about a server that is not one of the local stack."""
    return f"check that it runs, {setting} and the network"


def silence_of(service: str, error: Exception, setting: str) -> str:
    """The sentence about a service of AWS that gave no answer. botocore keeps address and cause in `kwargs`."""
    known = getattr(error, "kwargs", {})
    address = str(known.get("endpoint_url") or "").rstrip("/")
    where = f"{service} at {address}" if address else service
    cause = str(known.get("error") or error).strip().splitlines()
    said = cause[0].rpartition(": ")[2] if "onnection" in cause[0] else cause[0]
    return f"{where} does not answer ({said}): {how_to_reach(address, setting)}"
