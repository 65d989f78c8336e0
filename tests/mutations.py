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
             "blocks, arrays = [int(block) for block in blocks], np.asarray(arrays)\n        if len(arrays)",
             "blocks, arrays = [int(block) for block in blocks][:-1], np.asarray(arrays)[:-1]\n        if len(arrays)",
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
    Mutation("a megabit of a link is a gigabit", "jobs/cluster/links.py",
             '"mbit": 10**6', '"mbit": 10**9',
             "tests/jobs/test_cluster.py"),
    Mutation("a node's own rate is that of every node", "jobs/cluster/links.py",
             "return self.ports.get(node, self.every)", "return self.every",
             "tests/jobs/test_cluster.py"),
    Mutation("limits between nodes hold for the higher one alone", "jobs/cluster/links.py",
             "return {b if a == node else a: rate", "return {a: rate",
             "tests/jobs/test_cluster.py"),
    Mutation("ranks that do not divide by nodes do not fit", "jobs/cluster/launch.py",
             "each = -(-ranks // nodes) if", "each = ranks // nodes if",
             "tests/jobs/test_cluster.py"),
    Mutation("the last node has as many ranks as the first", "jobs/cluster/launch.py",
             "return [min(each, ranks - first) for first", "return [each for first",
             "tests/jobs/test_cluster.py"),
    Mutation("a transport that the user asks for is replaced", "jobs/cluster/launch.py",
             "in WITHIN[mpi].items() if key not in environment}", "in WITHIN[mpi].items()}",
             "tests/jobs/test_cluster.py"),
    Mutation("a launcher of the other library is taken", "jobs/cluster/launch.py",
             'if is_openmpi(mpirun) != (mpi == "openmpi"):', "if False:",
             "tests/jobs/test_cluster.py"),
    Mutation("a cluster of another boot is wanted", "jobs/cluster/registry.py",
             "if record.owner.boot != identity(os.getpid()).boot:",
             "if not record.kept and record.owner.boot != identity(os.getpid()).boot:",
             "tests/jobs/test_cluster.py"),
    Mutation("a directory that others can write to is used", "jobs/cluster/registry.py",
             "or status.st_mode & 0o077:", "or status.st_mode & 0o000:",
             "tests/jobs/test_cluster.py"),
    Mutation("headers are subtracted once", "jobs/cluster/traffic.py",
             "HEADERS * counters.sent_packets", "HEADERS",
             "tests/jobs/test_cluster.py"),
    Mutation("a tenth less than stated has not gone around", "jobs/cluster/traffic.py",
             "return self.sent < (1 - TOLERANCE) * self.stated.least",
             "return self.sent < (1 - 2 * TOLERANCE) * self.stated.least",
             "tests/jobs/test_cluster.py"),
    Mutation("bags are taken with the first rows of all", "miniapps/embeddings/bags.py",
             "return Bags(lengths, self.rows[first + within])", "return Bags(lengths, self.rows[within])",
             "tests/miniapps/test_embeddings.py"),
    Mutation("whole tables go to the rank that has most", "miniapps/embeddings/sharding.py",
             "rank = int(ranks[np.argmin(held[ranks])]) if given is None else given",
             "rank = int(ranks[np.argmax(held[ranks])]) if given is None else given",
             "tests/miniapps/test_embeddings.py"),
    Mutation("a letter that reorders what is read is printed", "miniapps/untrusted/text.py",
             'HIDDEN = ("Cc", "Cf", ', 'HIDDEN = ("Cc", ',
             "tests/miniapps/test_untrusted.py"),
    Mutation("JSON of tiny values is unfolded", "miniapps/untrusted/records.py",
             "> FREE + FACTOR * len(text):", "> 99 * FREE + 99 * FACTOR * len(text):",
             "tests/miniapps/test_untrusted.py"),
    Mutation("the time of a row of a ledger can be changed", "miniapps/untrusted/ledger.py",
             'canonical({"before": before, "prediction": prediction, "time": when})',
             'canonical({"before": before, "prediction": prediction})',
             "tests/analysis/test_predict_ledger.py"),
    Mutation("the header of a raw log may be changed", "miniapps/programs/rawlog.py",
             'if head["closing"] and xxhash.xxh3_64_intdigest(closing(head), hashed) != head["closing"]:', "if False:",
             "tests/miniapps/test_rawlog.py"),
    Mutation("who takes the handle is warned each time", "miniapps/programs/handles.py",
             "if who in (*OURS, *MOVE, *CALL) or who in taken:", "if who in (*OURS, *MOVE, *CALL):",
             "tests/miniapps/test_handles.py"),
    Mutation("a name that fpna.torch lacks is looked for elsewhere", "fpna/torch.py",
             "            if name in names:", "            if True:",
             "tests/kernels/test_torch_operators.py"),
    Mutation("a tolerance is crossed where growth would have begun", "analysis/studies/growth/law.py",
             "at = (np.log(tolerance) - starts[rising]) / slopes[rising]",
             "at = (np.log(tolerance) + starts[rising]) / slopes[rising]",
             "tests/analysis/test_growthlaw.py"),
    Mutation("a size is of the next smaller unit", "analysis/studies/nodes/words.py",
             "if nbytes >= 0.9995 * unit:", "if nbytes >= 1.0005 * unit:",
             "tests/analysis/test_nodes.py"),
    Mutation("the library of sums ignores a mask", "kernels/library/operands.hpp",
             "    if (in.mask)\n",
             "    if (in.mask && in.scaled)\n",
             "tests/mpi/test_library_mpi.py::test_drawn_calls_have_the_bits_of_python"),
    Mutation("the library of sums adds ranks one after the other", "kernels/library/over_ranks.hpp",
             "rows[r * row + t] += rows[(r + step) * row + t];",
             "rows[r * row + t] += rows[(ranks - step) * row + t];",
             "tests/mpi/test_library_mpi.py::test_drawn_calls_have_the_bits_of_python"),
    Mutation("the library of sums forgets conj", "kernels/library/sums.cpp",
             "{x + 1, y, true}",
             "{x + 1, y, false}",
             "tests/mpi/test_library_mpi.py::test_drawn_calls_have_the_bits_of_python"),
    Mutation("an accumulator of the library is not normalised", "kernels/library/accumulators.cpp",
             "own[0].words[k];\n    carry(words);",
             "own[0].words[k];",
             "tests/mpi/test_library_mpi.py::test_drawn_calls_have_the_bits_of_python"),
    Mutation("calls of the library keep the program's environment", "kernels/library/errors.hpp",
             "        const DefaultEnvironment environment;\n",
             "",
             "tests/mpi/test_library_known_mpi.py"),
    Mutation("ranks of the library never compare", "kernels/library/agreement.hpp",
             "return true;  // on one rank",
             "return false;  // on one rank",
             "tests/mpi/test_library_mpi.py"),
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
