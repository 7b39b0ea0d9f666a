"""The crash sweep: a life is ended at one hit of one failpoint, goes on in a new process, and is judged."""

from __future__ import annotations

import re
import signal
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from prism_assets_tests.crash import playing
from prism_assets_tests.crash.fleet import ROOT, Done, Fleet, Work, Worker
from prism_assets_tests.crash.fork_server import CRASHED, STOPPED_BY_ERROR, Child
from prism_assets_tests.crash.judge import divided, judge
from prism_assets_tests.crash.life import Life
from prism_assets_tests.crash.lives import LIVES
from prism_assets_tests.crash.moments import Moment, Played
from prism_assets_tests.crash.processes import environment
from prism_assets_tests.crash.reader import Poller
from prism_assets_tests.crash.steps import HIDDEN_SECONDS
from prism_assets_tests.notifications import QueueOfTest
from prism_assets_tests.world import World

KINDS = ("kill9", "raise")
MORE_KINDS = ("raise(TerminalError)", "raise(RuntimeError)")


@dataclass(frozen=True)
class Case:
    """One ending: the life with its seed, the failpoint with the hit, and the way to end."""

    life: str
    seed: int
    point: str = ""
    hit: int = 0
    kind: str = "off"

    def __str__(self) -> str:
        return f"{self.life}/{self.seed}: {self.kind} at hit {self.hit} of {self.point}" if self.point else self.life


@dataclass
class Verdict:
    """The result of a case. `happened` if the process ended, or the error was raised, at the failpoint."""

    case: Case
    happened: bool
    violations: list[str]
    looks: int = 0
    seconds: float = 0.0
    hits: list[str] = field(default_factory=list)


def hits(fleet: Fleet, seeds: Iterable[int], names: Iterable[str] = LIVES) -> dict[tuple[str, int], Counter[str]]:
    """Plays lives undisturbed and counts the hits of each failpoint; fails if anything is wrong without a kill."""
    works = [_work(Case(name, seed)) for seed in seeds for name in names]
    found = {}
    for verdict in _verdicts(fleet.map(works)):
        assert not verdict.violations, (str(verdict.case), verdict.violations)
        found[verdict.case.life, verdict.case.seed] = Counter(verdict.hits)
    return {key: found[key] for key in sorted(found, key=lambda key: (key[1], list(LIVES).index(key[0])))}


def cases(counted: Mapping[tuple[str, int], Counter[str]], kinds: Sequence[str], which: Sequence[int]) -> list[Case]:
    """Returns all cases: each point in the first life that reaches it, at the given hits or at the last one (-1)."""
    found, covered = [], dict[tuple[int, str], str]()
    for (life, seed), counts in counted.items():
        for point, count in counts.items():
            if covered.setdefault((seed, point), life) != life:
                continue
            chosen = sorted({min(number, count) if number > 0 else count + 1 + number for number in which})
            found += [Case(life, seed, point, number, kind) for number in chosen for kind in kinds]
    return found


def sweep(fleet: Fleet, wanted: Iterable[Case]) -> Iterator[Verdict]:
    """Ends a life at each case, and yields the verdicts."""
    return _verdicts(fleet.map(_work(case) for case in wanted))


def _work(case: Case) -> Work:
    life = None if LIVES[case.life](case.seed).queue else (case.life, case.seed)
    return Work(function=f"{__name__}:live", arguments={"case": asdict(case)}, life=life)


def _verdicts(done: Iterable[Done]) -> Iterator[Verdict]:
    for item in done:
        case = Case(**item.work.arguments["case"])
        if item.error:
            yield Verdict(case, False, [f"the test itself failed: {item.error}"])
        else:
            yield Verdict(case, **item.result)


OF_TOPICS = "spool."


def points_in_sources(package: Path = ROOT / "prism_assets") -> set[str]:
    """Returns the names of all failpoints in the sources, but for those of topics.

    These need a broker. `kafka/test_strikes.py` kills there.
    """
    call = re.compile(r"\bfailpoint\(\s*\"([^\"]+)\"\s*\)")
    sources = [path.read_text() for path in package.rglob("*.py") if path.name != "failpoints.py"]
    return {name for source in sources for name in call.findall(source) if not name.startswith(OF_TOPICS)}


def live(worker: Worker, case: dict[str, Any]) -> dict[str, Any]:
    """Runs a worker: a life with the ending of the case, and its recovery, watched by a reader."""
    started, wanted = time.monotonic(), Case(**case)
    life = LIVES[wanted.life](wanted.seed)
    moment, ending = None, wanted
    if wanted.point and not life.queue:
        moment, hit = _played(worker, life, wanted).place(wanted.point, wanted.hit)
        ending = replace(wanted, hit=hit)
    with _world(worker, life, moment) as world:
        poller = Poller(world.settings, life.watched, life.ended, erased=life.erased, rest=5)
        poller.start()
        poller.has_seen_all.wait()
        try:
            if wanted.point or life.queue:
                violations, hits, happened = _end(worker, world, ending)
                violations += divided(world)
            else:
                played, violations = _play_in_phases(worker, world, wanted, poller)
                worker.kept.add((wanted.life, wanted.seed), played, worker.postgres)
                hits, happened = [name for names in played.hits for name in names], True
            violations += _recover(worker, world, wanted)
            if not violations:
                violations = judge(world, life)
        finally:
            seen = poller.finish()
        return {
            "happened": happened,
            "violations": [*violations, *seen],
            "looks": poller.looks,
            "seconds": round(time.monotonic() - started, 2),
            "hits": [] if wanted.point else hits,
        }


def _played(worker: Worker, life: Life, case: Case) -> Played:
    """Returns the kept moments of a life. A worker that has none plays the life without an ending."""
    key = (case.life, case.seed)
    if (kept := worker.kept.find(key)) is not None:
        return kept
    with _world(worker, life) as world:
        played, violations = _play_in_phases(worker, world, Case(*key))
    assert not violations, violations
    worker.kept.add(key, played, worker.postgres)
    return played


@contextmanager
def _world(worker: Worker, life: Life, moment: Moment | None = None) -> Iterator[World]:
    """Creates the world of the life. With notifications it fails if messages remain."""
    if not life.queue:
        with worker.world(place="life", moment=moment, **life.settings) as world:
            yield world
        return
    queue = QueueOfTest(worker.services["PRISM_SQS_ENDPOINT"])
    queue.hide_for(HIDDEN_SECONDS)
    try:
        with worker.world(sqs_endpoint=queue.endpoint, sqs_queue_urls=(queue.url,)) as world:
            yield world
            assert queue.count() == 0, f"{queue.count()} messages are left"
    finally:
        queue.delete()


def _play_in_phases(worker: Worker, world: World, case: Case, poller: Poller | None = None) -> tuple[Played, list[str]]:
    """Plays a life without an ending, each phase in a process, and keeps the moments between them."""
    played, violations = Played(), list[str]()
    for number in range(len(LIVES[case.life](case.seed).phases)):
        with poller.between_looks() if poller else nullcontext():
            played.moments.append(worker.keep(world) if number else None)
        log = world.root / f"hits_{number}"
        child = _start(worker, world, case, "play", until=number + 1, PRISM_FAILPOINTS_LOG=str(log))
        if status := child.wait():
            violations.append(f"phase {number} ended with {status}: {child.said()}")
        played.hits.append(log.read_text().split() if log.exists() else [])
    return played, violations


def _end(worker: Worker, world: World, case: Case) -> tuple[list[str], list[str], bool]:
    """Plays to the ending of the case. Returns violations, hits, and whether the ending happened."""
    log = world.root / "hits"
    child = _start(worker, world, case, "play", PRISM_FAILPOINTS=_points(case), PRISM_FAILPOINTS_LOG=str(log))
    status = child.wait()
    hits = log.read_text().split() if log.exists() else []
    happened = Counter(hits)[case.point] >= case.hit and (status == -signal.SIGKILL) == (case.kind == "kill9")
    allowed = {0, -signal.SIGKILL, STOPPED_BY_ERROR, *([CRASHED] if "RuntimeError" in case.kind else [])}
    violations = []
    if not happened or status not in allowed:
        violations.append(f"it ended with {status}{'' if happened else ', and not where it should'}: {child.said()}")
    return violations, hits, happened


def _recover(worker: Worker, world: World, case: Case) -> list[str]:
    """Plays the rest of a life."""
    after = _start(worker, world, case, "recover")
    status = after.wait()
    return [f"the process after it ended with {status}: {after.said()}"] if status else []


def _points(case: Case) -> str:
    if not case.point:
        return ""
    before = f"{case.hit - 1}*off->" if case.hit > 1 else ""
    return f"{case.point}={before}1*{case.kind}"


def _start(worker: Worker, world: World, case: Case, what: str, until: int | None = None, **more: str) -> Child:
    arguments = {
        **({} if until is None else {"until": until}),
        "name": case.life,
        "seed": case.seed,
        "staging": str(world.root / "buckets" / "staging"),
        "progress": str(world.root / "progress"),
    }
    output = world.root / f"{what}.txt"
    return worker.fork_server.run(f"{playing.__name__}:{what}", arguments, environment(world, **more), output)
