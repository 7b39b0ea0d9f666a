"""The topic of the demo: a worker beside the stack reads it, and every message is counted."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from prism_assets.metadata.database import Database
from prism_assets_tests.kafka.broker import need_kafka
from prism_local.stack import LocalStack

pytestmark = pytest.mark.stack


def test_every_message_of_the_demo_is_a_row_or_counted(stack: LocalStack) -> None:
    need_kafka(stack.place.root)
    stack.up()
    database = Database(stack.environment()["PRISM_DATABASE_URL"])
    database.migrate()
    database.dispose()
    stack.up(services={"kafka", "worker"})
    known = {name: value for name, value in os.environ.items() if not name.startswith(("PRISM_", "AWS_"))}
    done = subprocess.run(
        [sys.executable, "-m", "prism_local.demo.topic"],
        cwd=stack.place.root.parent,
        env={**known, "PRISM_HOME": str(stack.place.root)},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert "27,000 messages in 60 transactions, 3,000 more in aborted ones" in done.stdout
    assert "every message is there exactly once" in done.stdout
