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


def without_credentials(where: str) -> str:
    """Returns the sentence for a service of AWS that is asked without credentials, with the remedy."""
    return f"{where}: no credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or a role"


def no_credentials_because(cause: object) -> str:
    """Returns the sentence for a profile to which AWS, or a program, gives no credentials now."""
    return f"AWS gave no credentials: {cause}"
