"""A stack in its own folder that leaves no process behind."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from prism_local import ports, processes
from prism_local.stack import ON_REQUEST, SERVERS, LocalStack


@pytest.fixture(autouse=True)
def _no_named_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    for service in (*SERVERS, *ON_REQUEST):
        monkeypatch.delenv(ports.variable(service), raising=False)


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[LocalStack]:
    made = LocalStack(tmp_path / ".prism")
    yield made
    made.down()
    assert processes.marked(made.place.marker) == []
