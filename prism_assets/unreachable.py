"""Error sentences for servers that do not answer: the cause and the remedy."""

from __future__ import annotations

from prism_assets.local_stack import is_local


def how_to_reach(address: str, setting: str) -> str:
    """Returns advice for a silent server at a URL or `host:port`. `setting` is the variable with the address."""
    if is_local(address):
        return "start it (`prism local up`)"
    return check_address(setting)


def check_address(setting: str) -> str:
    """Returns advice for a server outside the local stack."""
    return f"check that it runs, {setting} and the network"


def silence_of(service: str, error: Exception, setting: str) -> str:
    """Returns the sentence for a silent AWS service. botocore keeps address and cause in `kwargs`."""
    details = getattr(error, "kwargs", {})
    address = str(details.get("endpoint_url") or "").rstrip("/")
    where = f"{service} at {address}" if address else service
    cause = str(details.get("error") or error).strip().splitlines()
    reason = cause[0].rpartition(": ")[2] if "onnection" in cause[0] else cause[0]
    return f"{where} does not answer ({reason}): {how_to_reach(address, setting)}"
