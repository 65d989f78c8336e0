"""Kinds that harm what applications and campaigns are given: checkpoints, decks, matrices, campaigns, journals.

The paths of most of these are typed by a user, so that a link in their place may be followed.
"""

from __future__ import annotations

import functools
import io
import json
import os
import random
import re
import shutil
from pathlib import Path

import numpy as np

from miniapps.runner.failure import USAGE
from miniapps.untrusted.text import tell
from tests.fuzz import mutate
from tests.fuzz.base import Base
from tests.fuzz.forge import craft_any
from tests.fuzz.sandbox import Sandbox, Violation, clear, fresh

FLOW = ("--set", "grid.nx=16", "--set", "grid.ny=16", "--set", "grid.bx=8", "--set", "grid.by=8", "--set",
        "time.steps=3", "--log-level", "warning")  # fmt: skip
CAMPAIGN = """\
name = "small"
out = "out"

[defaults]
time = "00:01:00"
retries = 1

[[runs]]
app = "reductions"
ranks = [1, 2]
guarantee = ["none", "layout"]
options = { "problem.sizes" = 100, "problem.arrays" = 2, "method.samples" = 2, "method.variants" = "sptr" }

[[runs]]
app = "coupled"
ranks = [1]
deck = "S"
"""
APPS = ("coupled", "reductions", "solver")


def checkpoint(rng: random.Random, base: Base) -> str:
    """What a run restarts from is damaged or forged: it goes on with the same bits, or refuses."""
    closure = rng.choice(("none", "online"))
    place, good = _checkpointed(base, closure)
    box = fresh(base.case)
    run = box.runs / "run"
    shutil.copytree(place, run)
    outside = base.put_outside(box)
    path = next((run / "checkpoints").iterdir())
    bound = True
    how = rng.random()
    if how < 0.4:
        box.note(mutate.damage(rng, path))
    elif how < 0.5:
        box.note(mutate.replace(rng, path, run / "rank-00000.h5"))
    elif how < 0.6:
        box.note(mutate.damage(rng, rng.choice([each for each in run.iterdir() if each.is_file()])))
    else:
        box.note(forgery := craft_any(rng, path, outside))
        bound = ", loose: " in forgery
    option = "--weights" if closure == "online" and rng.random() < 0.2 else "--restart"
    with box.watched():
        answer = box.say(
            lambda: _run(
                "coupled", [*FLOW, "--closure", closure, option, str(path), "--out", str(box.out / "r")]
            )
        )
    if answer.code not in (0, 2) and bound:
        raise Violation(f"exit code {answer.code}: {answer.err[-500:]}")
    if bound and option == "--restart" and answer.code == 0 and state_of(answer.out) != good:
        raise Violation(f"other bits from a damaged checkpoint: {state_of(answer.out)}, not {good}")
    return "damaged" if answer.code else "same" if state_of(answer.out) == good else "free"


def state_of(text: str) -> str:
    """The fingerprint of the final state in what a run prints."""
    match = re.search(r"FINGERPRINT state=(\w+)", text)
    return match[1] if match else ""


def _run(app: str, argv: list[str]) -> int:
    from importlib import import_module

    from mpi4py import MPI

    from miniapps.runner.main import main

    return main(import_module(f"miniapps.{app}").APP, argv, MPI.COMM_SELF)


@functools.cache
def _checkpointed(base: Base, closure: str) -> tuple[Path, str]:
    """A run that wrote a checkpoint after its second step, and the fingerprint of its last state."""
    place = base.runs / f"flow-{closure}"
    clear(place)
    box = fresh(base.case)
    options = [*FLOW, "--closure", closure, "--checkpoint-every", "2", "--out", str(place)]
    answer = box.say(lambda: _run("coupled", options))
    if answer.code:
        raise RuntimeError(answer.err)
    return place, state_of(answer.out)


def deck(rng: random.Random, base: Base) -> str:
    """A deck is no TOML, or asks for what there is not."""
    from importlib import import_module, resources

    app = import_module(f"miniapps.{rng.choice(APPS)}").APP
    decks = [
        each for each in (resources.files(app.package) / "decks").iterdir() if each.name.endswith(".toml")
    ]
    text = rng.choice(sorted(decks, key=lambda each: each.name)).read_text(encoding="utf-8")
    box = fresh(base.case)
    path = _text(rng, box, "deck.toml", text)
    options = [f"--deck={path}"] + (["--list"] if rng.random() < 0.3 else [])
    with box.watched():
        answer = box.say(lambda: _checked(app, options))
    return "damaged" if answer.code == 2 else "free"


def _checked(app, argv: list[str]) -> int:
    """As `miniapps.runner.main` does before anything is created."""
    import sys

    from miniapps.runner import commandline, launch
    from miniapps.runner.config import effective
    from miniapps.runner.listing import listing
    from miniapps.runner.options import Common
    from miniapps.untrusted.text import tell

    try:
        options, own, only_list = commandline.parse(app, argv, {})
        app.fill_in(own, options, 1)
        values = effective(commandline.known_options(app), Common(options), own)
        if only_list:
            tell(listing(app, commandline.known_options(app), values), keep="\n")
        elif options.device == "cpu":
            launch.check(app, own, options, 1)
    except USAGE as error:
        tell(error, sys.stderr)
        return 2
    return 0


def campaign(rng: random.Random, base: Base) -> str:
    """The file of a campaign is no TOML, or asks for what there is not."""
    box = fresh(base.case)
    path = _text(rng, box, "campaign.toml", CAMPAIGN)
    with box.watched():
        answer = box.say(lambda: _jobs(["plan", str(path)]))
    if answer.code not in (0, 1, 2):
        raise Violation(f"exit code {answer.code}")
    return "damaged" if answer.code else "free"


def journal(rng: random.Random, base: Base) -> str:
    """What a campaign keeps of its tasks is damaged: nothing is finished that was not."""
    place, good = _campaigned(base)
    box = fresh(base.case)
    shutil.copytree(place, box.runs / "campaign")
    out = box.runs / "campaign" / "out"
    outside = base.put_outside(box)
    kept = sorted(path for path in out.rglob("*") if not path.is_symlink())
    path = rng.choice([each for each in kept if each.parent.name == "state"] if rng.random() < 0.7 else kept)
    how = rng.random()
    if how < 0.2:
        box.note(mutate.replace(rng, path, rng.choice((outside, box.outside / "secret.txt"))))
    elif path.suffix == ".jsonl" and how < 0.75:
        lines = path.read_text().splitlines()
        i = rng.randrange(len(lines))
        lines[i] = json.dumps(mutate.value(rng, json.loads(lines[i])))
        path.write_text("\n".join(lines) + rng.choice(("\n", "")))
        box.note(f"line {i + 1}: {lines[i][:200]}")
    elif path.suffix == ".lock" and how < 0.75:
        path.write_text(json.dumps(mutate.value(rng, json.loads(path.read_text()))))
        box.note(path.read_text()[:200])
    elif path.is_file():
        box.note(mutate.damage(rng, path))
    command = rng.choice((["status"], ["status"], ["plan", "--tasks"]))
    with box.watched():
        answer = box.say(lambda: _jobs([*command, str(box.runs / "campaign" / "campaign.toml")]))
    if answer.code not in (0, 1, 2):
        raise Violation(f"exit code {answer.code}")
    if command[0] == "status" and answer.code == 0 and finished(answer.out) > finished(good):
        raise Violation(f"more is finished than was: {answer.out[:1000]}")
    return "damaged" if answer.code or answer.err.strip() else "same"


def finished(text: str) -> int:
    """How many tasks `status` calls done."""
    return len(re.findall(r"\bdone\b", text))


def _jobs(argv: list[str]) -> int:
    from jobs.__main__ import main

    try:
        return main(argv)
    except SystemExit as end:
        return end.code or 0


@functools.cache
def _campaigned(base: Base) -> tuple[Path, str]:
    """A campaign with tasks in all states, without anything having been run, and what `status` says of it."""
    from jobs.campaign import read
    from jobs.plan import plan
    from jobs.state import CHECK_FAILED, DONE, FAILED, State
    from miniapps.untrusted.result import written

    place = base.runs / "campaign"
    clear(place)
    place.mkdir()
    (place / "campaign.toml").write_text(CAMPAIGN)
    box = fresh(base.case)
    workload = plan(read(place / "campaign.toml"))
    state = State(workload.campaign.out, 0)
    state.create()
    for task, outcome in zip(workload.tasks, (DONE, DONE, CHECK_FAILED, FAILED, ""), strict=False):
        state.begin(task, 1, "17")
        state.started(task, 1, os.getpid())
        state.log(task, 1).write_text("VERIFICATION: PASS\n")
        run = state.out / task.id
        run.mkdir()
        (run / "result.json").write_text(written({"status": "done", "exit_code": 0}))
        if outcome:
            state.end(task, 1, outcome, "a reason", 0 if outcome == DONE else 1, 1.5)
    with state.lock():
        held = state.lock_file.read_bytes()
    state.lock_file.write_bytes(held)
    answer = box.say(lambda: _jobs(["status", str(place / "campaign.toml")]))
    return place, answer.out


def matrix(rng: random.Random, base: Base) -> str:
    """A matrix or a vector from a file: read as a matrix, or refused with a sentence."""
    import scipy.io
    import scipy.sparse
    from mpi4py import MPI

    from miniapps.layout.rows import Rows
    from miniapps.solver import files

    box = fresh(base.case)
    n = rng.randrange(2, 9)
    system = scipy.sparse.random(n, n, 0.5, random_state=rng.randrange(2**31)) + scipy.sparse.identity(n)
    buffer = io.BytesIO()
    kind = rng.choice(("mtx", "npz", "npy", "vector.mtx"))
    if kind == "mtx":
        scipy.io.mmwrite(buffer, system.tocoo(), symmetry="general")
    elif kind == "npz":
        scipy.sparse.save_npz(
            buffer,
            rng.choice((system.tocsr(), system.tocsc(), system.tocoo())),
            compressed=rng.random() < 0.5,
        )
    elif kind == "npy":
        np.save(buffer, np.arange(float(n)))
    else:
        scipy.io.mmwrite(buffer, np.arange(float(n)).reshape(-1, 1))
    path = box.runs / f"input.{kind}"
    path.write_bytes(buffer.getvalue())
    how = rng.random()
    if how < 0.1:
        box.note(mutate.replace(rng, path, _other(box)))
    elif kind.endswith("mtx") and how < 0.6:
        text = mutate.lines(rng, path.read_text())
        path.write_text(text, encoding="utf-8", errors="surrogatepass")
        box.note(text[:300])
    elif kind == "npz" and how < 0.6:
        box.note(_repacked(rng, path))
    else:
        box.note(mutate.damage(rng, path))

    def read() -> int:
        try:
            if kind in ("npy", "vector.mtx"):
                files.vector(path, MPI.COMM_SELF, Rows(np.array([0, n])))
            else:
                size = files.header(path).rows
                if (
                    size < 10**7
                ):  # more rows may be asked for; how many a rank can hold is the machine's affair
                    files.read(path, MPI.COMM_SELF, Rows(np.array([0, size])))
        except USAGE as error:
            tell(error)
            return 2
        return 0

    with box.watched():
        return "damaged" if box.say(read).code == 2 else "free"


def _repacked(rng: random.Random, path: Path) -> str:
    """One array of an .npz file is another."""
    with np.load(path, allow_pickle=False) as archive:
        arrays = dict(archive)
    name = rng.choice(sorted(arrays))
    arrays[name] = rng.choice((
        np.array(10**12), np.zeros(0), np.array([2**62, 2**62]), np.full(5, -1), np.array(b"csr"), np.array("bsr"),
        np.full(3, np.nan), np.zeros((3, 3)), np.array([10**9, 10**9]), np.arange(100), np.array(["x"]), np.array(1j),
    ))  # fmt: skip
    if rng.random() < 0.2:
        arrays["x" * rng.choice((1, 60_000))] = np.zeros(10**6)
    np.savez_compressed(path, **arrays)
    return f"{name} {arrays[name]!r}"[:200]


def _other(box: Sandbox) -> Path:
    """A file that is none of ours, where a link may lead."""
    path = box.runs / "other"
    path.write_text("nothing\n")
    return path


def _text(rng: random.Random, box: Sandbox, name: str, text: str) -> Path:
    """The file `name` of damaged `text`."""
    path = box.runs / name
    path.write_text(text)
    how = rng.random()
    if how < 0.05:
        box.note(mutate.replace(rng, path, _other(box)))
        return path
    if how < 0.2:
        box.note(mutate.damage(rng, path))
        return path
    for _ in range(rng.choice((1, 1, 2, 3))):
        text = mutate.lines(rng, text)
    path.write_text(text, encoding="utf-8", errors="surrogatepass")
    box.note(text[:400])
    return path
