"""Honest runs that were cut off, or copied while they went on, at moments drawn at random; and whether anything in them
is called wrong.

    .venv/bin/python -m tests.miniapps.cut_off --cases 500 [--kills 40] [--seed 1]
"""

import argparse
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from miniapps.trace import TraceError
from miniapps.trace.checked import Mixed, check
from tests.launch import ROOT, environment, launcher

PROGRAM = ROOT / "tests" / "miniapps" / "programs" / "small_chunks.py"
GRID = ["--set", "grid.nx=16", "--set", "grid.ny=16", "--set", "grid.bx=8", "--set", "grid.by=8"]
CUBE = [f"--set=grid.b{axis}=2" for axis in "xyz"]
SOLVE = ["solver", "--nx", "4", "--ny", "4", "--nz", "4", *CUBE, "--right-side", "random", "--tolerance", "0"]
COMMON = ["--guarantee", "layout", "--quiet", "--no-progress"]
# Runs of a second or two; heads every few steps, and what ranks record differs from rank to rank and table to table.
RUNS = {
    "flow": ["coupled", "--closure", "none", "--steps", "160", "--checkpoint-every", "3", *GRID],
    "flow, messages": ["coupled", "--closure", "none", "--steps", "60", "--checkpoint-every", "7",
                       "--record", "messages", *GRID],
    "flow, no times": ["coupled", "--closure", "none", "--steps", "160", "--checkpoint-every", "3",
                       "--trace", "off", *GRID],
    "flow, repeats": ["coupled", "--closure", "none", "--steps", "25", "--checkpoint-every", "4", "--repeats", "6",
                      *GRID],
    "training": ["training", "--data", "blobs", "--steps", "200", "--evaluate-every", "7", "--checkpoint-every", "5"],
    "solve": [*SOLVE, "--max-iterations", "400", "--checkpoint-every", "6"],
    "files of nodes": ["coupled", "--closure", "none", "--steps", "60", "--checkpoint-every", "3", "--repeats", "2",
                       "--trace-files", "node", *GRID],
}  # fmt: skip
RANKS = (1, 2, 3)
REFUSED = {"damaged": "torn", "not a trace": "torn",
           "never finished": "torn", "no such file": "torn", "no head": "no head",
           "without rank-": "no head", "no rank-*.h5": "no head"}  # fmt: skip
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)


@contextlib.contextmanager
def going(out, name, ranks, more=()):
    """A run that goes on, in the new directory `out`; killed at the end, where it has not ended."""
    command, extra = launcher("mpich")
    job = subprocess.Popen(
        [*command, "-n", str(ranks), sys.executable, str(PROGRAM), *RUNS[name], *COMMON, *more, "--out", str(out)],
        env=environment(extra), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    try:
        yield job
    finally:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
        job.wait()


def begun(out, job, limit=60):
    """Wait until the run has a checkpoint, or has ended."""
    deadline = time.monotonic() + limit
    while time.monotonic() < deadline and job.poll() is None:
        if next((out / "checkpoints").glob("*.h5"), None) is not None:
            return
        time.sleep(0.002)


def copied(run, out):
    """A copy of a directory file by file, as `cp -r` makes it: what vanishes meanwhile is not in it."""
    out.mkdir()
    for folder, _, files in os.walk(run):
        here = out / Path(folder).relative_to(run)
        here.mkdir(exist_ok=True)
        for name in files:
            with contextlib.suppress(FileNotFoundError):
                shutil.copyfile(Path(folder, name), here / name)
    return out


def verdict(run):
    """(what came of it, a sentence): `right`, `no head`, `mixed` for a copy of two moments, `torn` for a file that was
    copied while it was written, or `ACCUSED`."""
    try:
        checked = check(run)
    except Mixed as error:
        return ("mixed" if "is from before the end of the run" in str(error) else "ACCUSED"), str(error)
    except TraceError as error:
        text = str(error)
        return next((kind for word, kind in REFUSED.items() if word in text), "ACCUSED"), text
    wrong = [each.why for each in checked.broken] + checked.contradictions
    return ("ACCUSED", "; ".join(wrong)) if wrong else ("right", f"{len(checked.marks)} heads")


def copies(folder, count, rng, pause=0.05):
    """(run, what came of it, sentence) of `count` copies of runs that go on, up to `pause` seconds apart."""
    made = 0
    while made < count:
        name, ranks = rng.choice(list(RUNS)), rng.choice(RANKS)
        out = folder / f"run-{made}"
        kept = []
        with going(out, name, ranks) as job:
            begun(out, job)
            while len(kept) < min(40, count - made) and (job.poll() is None or not kept):
                kept.append(copied(out, folder / f"copy-{made}-{len(kept)}"))
                time.sleep(rng.random() * pause)
        for copy in kept:
            yield f"{name} on {ranks} ranks", *verdict(copy)
            shutil.rmtree(copy)
        shutil.rmtree(out)
        made += len(kept)


def kills(folder, count, rng):
    """The same of `count` runs in which a signal ended a rank, or all of them."""
    for number in range(count):
        name, ranks, sent = rng.choice(list(RUNS)), rng.choice(RANKS), rng.choice(SIGNALS)
        out = folder / f"killed-{number}"
        with going(out, name, ranks) as job:
            begun(out, job)
            time.sleep(rng.random() * 1.2)
            pids = ranks_of(job.pid)
            for pid in rng.sample(pids, rng.randint(1, len(pids))) if pids else ():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, sent)
            with contextlib.suppress(subprocess.TimeoutExpired):
                job.wait(15)
        yield f"{name} on {ranks} ranks, {sent.name}", *verdict(out)
        shutil.rmtree(out)


def ranks_of(pid):
    """The processes below `pid` that run the program."""
    found, todo = [], [pid]
    while todo:
        with contextlib.suppress(OSError):
            for child in Path(f"/proc/{todo.pop()}/task").glob("*/children"):
                todo += map(int, child.read_text().split())
                found += map(int, child.read_text().split())
    kept = []
    for each in found:
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{each}/cmdline").read_bytes().split(b"\0")  # none of one that has just ended
            if PROGRAM.name.encode() in b" ".join(words[1:2]):
                kept.append(each)
    return kept


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=500)
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rng, counts = random.Random(options.seed), Counter()
    with tempfile.TemporaryDirectory() as folder:
        for drawn in (copies(Path(folder), options.cases, rng), kills(Path(folder), options.kills, rng)):
            for run, what, sentence in drawn:
                counts[what] += 1
                if what in ("ACCUSED", "torn"):
                    print(run, what, sentence, flush=True)
    print(dict(counts))


if __name__ == "__main__":
    main()
