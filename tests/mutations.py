"""Does `make test` notice? `python -m tests.mutations` breaks a copy, one way at a time, and runs the tests.

For each mutation the tests that are most likely to notice run first, then all that `make test` runs (not with --named).
Words choose the mutations in whose description one of them is. Ends with 0 if at most one mutation survives.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Mutation:
    """In the file `path`, `old` (there once) becomes `new`; `tests` run first."""

    what: str
    path: str
    old: str
    new: str
    tests: str


MUTATIONS = (
    Mutation("a rank of the ring leaves its own contribution out", "kernels/allreduce/schedules/ring.py",
             "TOTAL, (2 if i else 1, OWN))", "TOTAL, (2 if i else 1,))", "tests/kernels/test_schedules.py"),
    Mutation("blocks are dealt one rank off", "miniapps/layout/owners.py",
             "[base + (r < extra) for r", "[base + (r >= size - extra) for r",
             "tests/miniapps/test_blocks.py"),
    Mutation("a halo reads one point too far inside", "miniapps/layout/halo.py",
             "runs += [(a + k, b + k, rows, pitch_a, pitch_b) for k in range(columns)]",
             "runs += [(a + k + 1, b + k, rows, pitch_a, pitch_b) for k in range(columns)]",
             "tests/mpi/test_halo_mpi.py"),
    Mutation("the last block of a rank has no fingerprint", "miniapps/trace/writer.py",
             "blocks = [int(block) for block in blocks]\n        if len(arrays)",
             "blocks, arrays = [int(block) for block in blocks][:-1], arrays[:-1]\n        if len(arrays)",
             "tests/miniapps/test_trace.py"),
    Mutation("a broken promise is called a difference", "analysis/verdict.py",
             'DIFFERS if self.guarantee == "none" else BROKEN', "DIFFERS",
             "tests/analysis/test_verdict.py"),
    Mutation("a failed check ends with 0", "miniapps/runner/failure.py",
             "TERMINATED = 0, 1, 2, 3,", "TERMINATED = 0, 1, 2, 0,",
             "tests/miniapps/test_main.py"),
    Mutation("a damaged file is believed", "miniapps/untrusted/sealed.py",
             "if xxhash.xxh3_128_hexdigest(memoryview(image)[HEADER:]) != digest:", "if not digest:",
             "tests/miniapps/test_untrusted.py"),
    Mutation("a replay adds in order of rank", "kernels/allreduce/execution/arrival.py",
             "for rank in order[1:].tolist():", "for rank in sorted(order[1:].tolist()):",
             "tests/mpi/test_allreduce_mpi.py::test_section[an_arrival_log_explains_the_bits_and_replays_them-mpich-4]"),
    Mutation("distances in ULP are one too large", "kernels/bits.py",
             "distance = np.where(low > high, low - high, high - low).astype(np.float64)",
             "distance = np.where(low > high, low - high, high - low).astype(np.float64) + 1",
             "tests/kernels/test_bits.py"),
    Mutation("a task whose check failed is not finished", "jobs/state.py",
             "FINISHED: tuple[Outcome, ...] = (DONE, CHECK_FAILED)", "FINISHED: tuple[Outcome, ...] = (DONE,)",
             "tests/jobs/test_state.py"),
    Mutation("faults strike one step late", "miniapps/runner/faults.py",
             "(fault.repeat, fault.step) == (repeat, step)", "(fault.repeat, fault.step + 1) == (repeat, step)",
             "tests/miniapps/test_faults.py"),
    Mutation("the median takes the next larger element", "analysis/statistics.py",
             "np.ceil(q * defined).astype(np.int64) - 1", "np.ceil(q * defined).astype(np.int64)",
             "tests/analysis/test_sums_statistics.py"),
)  # fmt: skip


def copied(place: Path) -> None:
    """The working tree, as far as git knows it, with its extension and environments."""
    listed = subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).split("\n")
    for name in filter(None, listed):
        if (ROOT / name).exists():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, place / name)
    for built in ROOT.glob("kernels/_native*.so"):
        shutil.copy2(built, place / "kernels" / built.name)
    for environment in ROOT.glob(".venv*"):
        (place / environment.name).symlink_to(environment.resolve())


def noticed(place: Path, mutation: Mutation, named: bool) -> str:
    """The first test that fails of the mutated copy, or "" if none does."""
    path = place / mutation.path
    before = path.read_text()
    if before.count(mutation.old) != 1:
        raise SystemExit(
            f"{mutation.what}: its text is in {mutation.path} {before.count(mutation.old)} times, not once"
        )
    path.write_text(before.replace(mutation.old, mutation.new))
    try:
        for tests in (mutation.tests,) if named else (mutation.tests, "tests"):
            command = [
                sys.executable,
                "-m",
                "pytest",
                "-m",
                "not slow",
                "-x",
                "-p",
                "no:cacheprovider",
                "-r",
                "fE",
                tests,
            ]
            done = subprocess.run(
                command,
                cwd=place,
                capture_output=True,
                text=True,
                env=os.environ | {"PYTHONPATH": str(place)},
            )
            if done.returncode == 1:
                return next(line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR")))
            if done.returncode not in (0, 5):
                raise SystemExit(done.stdout + done.stderr)
    finally:
        path.write_text(before)
    return ""


def main() -> int:
    """Try all mutations."""
    words, survived = [word for word in sys.argv[1:] if word != "--named"], 0
    chosen = [one for one in MUTATIONS if not words or any(word in one.what for word in words)]
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        copied(place)
        for mutation in chosen:
            begin = time.monotonic()
            test = noticed(place, mutation, "--named" in sys.argv)
            survived += not test
            print(f"{mutation.what}: {test or 'SURVIVED'} ({time.monotonic() - begin:.0f} s)", flush=True)
    print(f"{len(chosen) - survived} of {len(chosen)} noticed")
    return int(survived > 1)


if __name__ == "__main__":
    sys.exit(main())
