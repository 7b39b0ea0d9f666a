"""Plays a life in a separate process, and records each finished phase."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

import boto3

from prism_assets.platform import build_context
from prism_assets.settings import load_settings
from prism_assets.stages.context import StageContext
from prism_assets.stages.run import CycleReport, lasting_errors, run_once
from prism_assets_tests.crash.life import Drop, Phase
from prism_assets_tests.crash.lives import LIVES
from prism_assets_tests.crash.steps import do, publish_iceberg
from prism_assets_tests.notifications import a_body, a_record


def phase_reached(progress: Path) -> int:
    """Returns the player's phase by its records."""
    return int(progress.read_text()) if progress.exists() else 0


def play(name: str, seed: int, staging: str, progress: str, until: int | None = None) -> None:
    """Plays a life from the reached phase to the last, or to the one before `until`."""
    life, written = LIVES[name](seed), Path(progress)
    context = build_context(load_settings())
    context.settings.tables_dir.mkdir(exist_ok=True)
    for number, text in enumerate(life.files):
        (context.settings.tables_dir / f"{number}.yaml").write_text(text)
    for number, phase in enumerate(life.phases[:until]):
        if number >= phase_reached(written):
            _play_phase(context, phase, Path(staging))
            _note(written, number + 1)


def recover(name: str, seed: int, staging: str, progress: str) -> None:
    """Plays the rest of a life and two more runs. Fails if anything is then wrong or unfinished."""
    play(name, seed, staging, progress)
    life, context = LIVES[name](seed), build_context(load_settings())
    known = [drop.key for drop in life.drops if drop.vanishes]
    for phase in life.rests:
        turns = _play_phase(context, phase, Path(staging))
        errors = (*turns[-1].errors, *lasting_errors(context, turns))
        assert not [error for error in errors if not any(key in error for key in known)], errors
    again = run_once(context, now=phase.now)
    assert not again.changed, f"one more run, and it changes something: {again}"
    published = publish_iceberg(context, phase.now)
    assert not published.changed, f"one more publication, and it changes something: {published}"
    assert published.errors == (), published.errors


def _play_phase(context: StageContext, phase: Phase, staging: Path) -> tuple[CycleReport, ...]:
    for drop in phase.drops:
        put(staging, drop, phase.now)
        for url in context.settings.sqs_queue_urls:
            _tell(context, url, drop)
    turns: tuple[CycleReport, ...] = ()
    for step in phase.steps:
        turns = do(context, step, phase.now) or turns
    return turns


def put(staging: Path, drop: Drop, now: datetime) -> None:
    """Writes an object completely, as if at that instant. An existing one stays."""
    path = staging / drop.key
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = staging.parent / f"{path.name}.new"
    aside.write_bytes(drop.body())
    os.utime(aside, (now.timestamp(), now.timestamp()))
    aside.rename(path)


def _tell(context: StageContext, url: str, drop: Drop) -> None:
    client = boto3.client("sqs", endpoint_url=context.settings.sqs_endpoint, region_name="us-east-1")
    client.send_message(QueueUrl=url, MessageBody=a_body(a_record(drop.key, size=len(drop.body()))))


def _note(progress: Path, phase: int) -> None:
    aside = progress.with_suffix(".new")
    aside.write_text(str(phase))
    aside.rename(progress)
