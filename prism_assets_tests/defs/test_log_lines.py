"""The log of a process of Dagster has one line for each record, also after a library reported an error."""

from __future__ import annotations

import os
import subprocess
import sys

PROCESS = """
import logging
from dagster import get_dagster_logger
from dagster._utils.log import configure_loggers
from sqlalchemy import NullPool, create_engine

configure_loggers()
create_engine(
    "postgresql+psycopg2://u@127.0.0.1:1/d?plugin=prism_kept_connections", poolclass=NullPool
).dispose()
loggers = [logging.getLogger("dagster.daemon"), get_dagster_logger("prism_assets"), logging.getLogger("prism_assets.x")]
for logger in loggers:
    logger.warning("before")
logging.warning("Retrying failed database connection")  # as dagster_postgres does it
for logger in loggers:
    logger.warning("after")
"""


def test_every_record_is_one_line_also_after_a_library_logged_through_the_root() -> None:
    done = subprocess.run([sys.executable, "-c", PROCESS], env=os.environ, capture_output=True, text=True, check=True)
    lines = (done.stdout + done.stderr).splitlines()
    assert len([line for line in lines if "before" in line]) == 3
    assert len([line for line in lines if "Retrying failed database connection" in line]) == 1
    assert len([line for line in lines if "after" in line]) == 3
