"""`python -m miniapps verify`: execute a fraction of a run again and compare every bit with its records."""

from __future__ import annotations

import argparse
import contextlib
import os
import secrets
import shutil
import sys
import time
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kernels.commands.entry import command_line
from kernels.commands.options import add_json, add_loudness, add_version
from miniapps.errors import UsageError
from miniapps.system import environment
from miniapps.system.python import module, relay
from miniapps.system.world import parsed, speaks
from miniapps.trace import TraceError
from miniapps.trace.heads import chains
from miniapps.trace.published import Published, compare, read_published
from miniapps.trace.reader import read_run
from miniapps.trace.uncovered import Uncovered, sentences, uncovered
from miniapps.untrusted import Refused
from miniapps.untrusted.arguments import Parser
from miniapps.untrusted.text import printable, tell
from miniapps.verify.again import Interval, arguments, execute
from miniapps.verify.claim import Claim, NotVerifiable, claim, require_begun, require_here, require_there
from miniapps.verify.draw import ALWAYS, by_repeat, chance, drawn, split
from miniapps.verify.output import VerifyOutput
from miniapps.verify.rows import Difference, Rows, first_difference, rows_of

AGREES, FAILED, NOT_VERIFIABLE, DIFFERS = 0, 1, 2, 3
EXAMPLES = """\
examples:
  python -m miniapps verify runs/a --published output-of-the-job.txt
      executes a tenth of the intervals between checkpoints on one rank; the last published head decides which
  python -m miniapps verify runs/a --fraction 1 --ranks 4
      executes all intervals on four ranks
  python -m miniapps verify runs/a --against runs/b
      finds where two runs of one problem begin to differ, and which of them is right

Exit codes: 0 all executed intervals agree; 1 failure; 2 the run cannot be verified; 3 a bit differs.
"""


def parser(prog: str = "python -m miniapps verify") -> argparse.ArgumentParser:
    """The command line; `prog` is what the user typed before the options."""
    top = Parser(
        prog=prog, description="Executes parts of a run again, from its checkpoints, and compares every bit.",
        example=f"{prog} runs/a",
        epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False,
    )  # fmt: skip
    top.add_argument("run", metavar="RUN", type=Path, help="the directory of a run with checkpoints")
    top.add_argument(
        "--fraction", type=float, default=0.1,
        help="fraction of the intervals between heads to execute again, above 0, up to 1 (0.1); always the first, the "
        "last and at least one other",
    )  # fmt: skip
    top.add_argument(
        "--challenge",
        metavar="TEXT",
        help="a text that decides the draw together with the heads; choose it after the heads were published (a random "
        "one); '' for none",
    )
    top.add_argument(
        "--published",
        type=Path,
        metavar="FILE",
        help="the output of the run, with its lines CHAIN step=S head=H: the command compares the heads, and the last "
        "one decides the draw",
    )
    top.add_argument(
        "--ranks", type=int, metavar="N", help="number of ranks that execute (the ranks of mpirun, else 1)"
    )
    top.add_argument(
        "--mesh", default="", help="mesh of these ranks, for training over a mesh (all along its first axis)"
    )
    top.add_argument(
        "--against",
        type=Path,
        metavar="RUN2",
        help="execute only the first interval in which RUN2 differs from RUN",
    )
    top.add_argument(
        "--out",
        type=Path,
        help="keep the executed intervals in this new or empty directory (removed at the end)",
    )
    add_json(top)
    add_loudness(
        top,
        "the verdict alone",
        "also the probability that the draw contains a wrong interval, if 2, 4 or 8 are wrong",
    )
    add_version(top)
    return top


@command_line
def main(argv: list[str], prog: str = "python -m miniapps verify") -> int:
    """Verify a run; returns the exit code, the same on all ranks."""
    options = parsed(parser(prog), argv)
    if not 0.0 < options.fraction <= 1.0:
        return _refuse(f"--fraction {options.fraction:g}: choose a number above 0, up to 1")
    launcher = environment.launched()
    if options.ranks is not None and not 1 <= options.ranks <= 2**20:
        return _refuse(f"--ranks {options.ranks}: choose 1 to {2**20}")
    if launcher is None and options.ranks not in (None, 1):
        return _launched(options.ranks, argv)
    from miniapps.system.world import world

    try:
        comm = world()
    except UsageError as error:
        return _refuse(str(error))
    if options.ranks not in (None, comm.size):
        return _refuse(
            f"--ranks {options.ranks}: this command was started on {comm.size} ranks; leave --ranks out", comm
        )
    try:
        return verify(options, comm)
    except Exception as error:  # on one rank: the others would wait for it without end
        tell(f"verify: rank {comm.rank}: {type(error).__name__}: {error}", sys.stderr)
        if comm.size > 1:
            comm.Abort(FAILED)
        return FAILED


def verify(options: argparse.Namespace, comm: Any) -> int:
    """Verify the run that `options` name, on the ranks of `comm`; returns the exit code. Collective."""
    plan: tuple[int, str, list[tuple[Interval, list[str]]]] = (AGREES, "", [])
    claims: list[Claim] = []
    out = Path()
    output = VerifyOutput(options.json, options.quiet)
    if comm.rank == 0:
        try:
            published = None if options.published is None else read_published(options.published)
            claims = [claim(run) for run in (options.run, options.against) if run is not None]
            code, chosen = _chosen(options, claims, published, output)
            if chosen:
                for each in claims:
                    require_here(each)
                    require_begun(each)
                _require_checkpoints(chosen)
                out = options.out or Path(
                    f"runs/verify-{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(2)}"
                )
            jobs = [
                (
                    interval,
                    arguments(claims[0].attributes, interval, comm.size, options.mesh, out / str(number)),
                )
                for number, interval in enumerate(chosen)
            ]
            if chosen:
                _make_directory(out)  # last, once nothing else can be refused
            plan = code, claims[0].attributes["app"], jobs
        except (NotVerifiable, UsageError, TraceError, Refused, OSError) as error:
            tell(f"verify: {error}", sys.stderr)
            plan = NOT_VERIFIABLE, "", []
    code, app, jobs = comm.bcast(plan)
    held: dict[tuple[int, int], Rows] = {}
    for interval, line in jobs:
        begin = time.perf_counter()
        ended = execute(app, line, comm, interval.start)
        if ended not in (0, 3):  # 3: a check of the run failed, as it may have in the first execution
            if comm.rank == 0:
                tell(
                    f"verify: the interval from {interval} cannot be executed again here (exit code {ended})",
                    sys.stderr,
                )
            code = max(code, NOT_VERIFIABLE)
            break
        if comm.rank == 0:
            try:
                for each in claims:
                    require_there(each, Path(line[1]))
            except NotVerifiable as error:
                tell(f"verify: {error}", sys.stderr)
                code = max(code, NOT_VERIFIABLE)
                continue
            wrong = _judge(claims, interval, Path(line[1]), held, time.perf_counter() - begin, output)
            code = DIFFERS if wrong else code
    if comm.rank == 0:
        if jobs and options.out is None:
            shutil.rmtree(out, ignore_errors=True)
            with contextlib.suppress(OSError):  # removes `runs` if it is empty
                out.parent.rmdir()
        if code in (AGREES, DIFFERS):
            _conclude(claims, [interval for interval, _ in jobs], code, output)
    return comm.bcast(code)


def _chosen(
    options: argparse.Namespace, claims: list[Claim], published: Published | None, output: VerifyOutput
) -> tuple[int, list[Interval]]:
    """(exit code so far, the intervals to execute again); prints the draw. Raises NotVerifiable."""
    run, *others = claims
    for each in claims:
        for sentence in each.wrong[:1]:
            output.verdict(f"NOT VERIFIED: {each.run}: {sentence}; see python -m analysis chain")
            return DIFFERS, []
    compared = None
    if published is not None:
        compared = compare(published, run.checked)
        output.facts["published"] = {
            "file": str(published.path),
            "compared": len(compared.equal) + len(compared.other),
            "of": len(run.checked.marks),
        }
        if compared.wrong:
            output.verdict(f"NOT VERIFIED: {run.run}: {compared.wrong[0]}; see python -m analysis chain")
            return DIFFERS, []
        if not compared.equal:
            raise NotVerifiable(f"--published: no head could be compared: {compared.sentence(published)}")
        output.line(compared.sentence(published))
    if run.checked.cut:
        output.line(run.checked.cut)
    if others:
        return _bisected(run, others[0], output)
    pool, later = split(run.intervals, None if compared is None else compared.equal)
    heads = [of[-1].head for of in by_repeat(pool)]
    challenge = secrets.token_hex(8) if options.challenge is None else options.challenge
    numbers = drawn(",".join(heads), challenge, len(pool), options.fraction)
    chances = {w: chance(len(pool), len(numbers), w) for w in (1, 2, 4, 8) if w <= len(pool)}
    known = options.challenge is not None and not challenge and len(numbers) < len(pool)
    chances = {w: 0.0 if known and w <= len(pool) - ALWAYS else p for w, p in chances.items()}
    output.facts |= {
        "challenge": challenge,
        "heads": heads,
        "chances": [{"wrong": w, "chance": p} for w, p in chances.items()],
    }
    attributes = run.attributes
    last = "the last published head" if compared is not None else "the last head"
    output.line(
        f"{attributes['app']}, --guarantee {attributes['guarantee']}, {attributes['size']} ranks: {len(numbers)} "
        f"of {len(pool)} intervals between heads, drawn by {last} {heads[-1][:16]}... and the challenge "
        f"{challenge!r}" + (", the first and the last always." if len(numbers) < len(pool) else ".")
    )
    if options.challenge is None and len(numbers) < len(pool):
        output.line(f"The challenge is new and random: --challenge {challenge} repeats this draw.")
    if later:
        output.line(
            f"The draw leaves out {len(later)} intervals, from {later[0]} on: no head after them was published."
        )
    for wrong, p in chances.items() if options.verbose else list(chances.items())[:1]:
        output.line(_odds(wrong, p, len(pool), options, compared is not None, known))
    return AGREES, [pool[number] for number in numbers]


def _odds(wrong: int, p: float, count: int, options: argparse.Namespace, published: bool, known: bool) -> str:
    """A sentence with the probability `p` that the draw contains one of `wrong` intervals of `count`, and its
    conditions."""
    sentence = (
        f"The draw contains a wrong interval with probability {p:.4f} if {wrong} of {count} "
        f"{'are' if wrong > 1 else 'is'} wrong"
    )
    if p == 1.0:
        return f"{sentence}."
    sentence += (
        f", {'none of them' if wrong > 1 else 'neither'} the first {'or' if wrong > 1 else 'nor'} the last"
    )
    if known:
        return f"{sentence}, and their author knows the rule: without a challenge the heads alone decide the draw."
    if options.challenge is not None:
        when = (
            "the heads were published" if published else "the last moment at which the run could be changed"
        )
        sentence += f", and if the challenge was chosen after {when}"
    return f"{sentence}."


def _bisected(run: Claim, other: Claim, output: VerifyOutput) -> tuple[int, list[Interval]]:
    """(exit code so far, the first interval after which the heads of two runs differ), by bisection."""
    for what, of in (
        ("application", lambda each: each.attributes["app"]),
        ("problem", lambda each: each.attributes["problem_options"]),
        ("kind of fingerprints", lambda each: each.fingerprint),
    ):
        if of(run) != of(other):
            raise NotVerifiable(
                f"{run.run} and {other.run} differ in their {what}; give two runs of the same problem"
            )
    ours, theirs = run.intervals, other.intervals
    places = [[(each.repeat, each.after, each.until) for each in own] for own in (ours, theirs)]
    if places[0] != places[1]:
        raise NotVerifiable(
            f"{run.run} and {other.run} have heads at different steps; give runs with the same --checkpoint-every"
        )
    low, high, asked = 0, len(ours) - 1, 1
    # A head contains the head before, so all heads after the first different one differ; each repeat begins anew.
    ends = [k for k, each in enumerate(ours) if each.ends or k == high]
    for end in ends:
        if ours[end].head != theirs[end].head:
            high = end
            break
        low, asked = end + 1, asked + 1
    else:
        output.verdict(f"{run.run} and {other.run} have the same heads ({asked - 1} compared).")
        return AGREES, []
    while low < high:
        middle, asked = (low + high) // 2, asked + 1
        low, high = (low, middle) if ours[middle].head != theirs[middle].head else (middle + 1, high)
    output.line(
        f"The heads first differ after the interval from {ours[low]} ({asked} of {len(ours)} compared); it is "
        "executed again."
    )
    return DIFFERS, [ours[low]]


def _judge(
    claims: list[Claim], interval: Interval, again: Path, held: dict, seconds: float, output: VerifyOutput
) -> bool:
    """Compare the executed interval in `again` with each run and print the verdicts; whether one differs."""
    (trace,) = read_run(again, ranks=[0])
    mark = next((m for chain in chains(trace) for m in chain.marks if m.step == interval.until), None)
    new = rows_of(again, 0).between(interval.after, interval.until)
    differ = []
    for number, each in enumerate(claims):
        key = number, interval.repeat
        if key not in held:
            held[key] = rows_of(each.run, interval.repeat)
        old = held[key].between(interval.after, interval.until)
        place = next(
            own for own in each.intervals if (own.repeat, own.until) == (interval.repeat, interval.until)
        )
        difference: Difference | str | None = first_difference(old, new)
        if difference is None:
            for what, here in (("checkpoint", "checkpoint"), ("final state", "state"), ("head", "head")):
                if mark is None or getattr(mark, here) != getattr(place, here):
                    difference = f"step {interval.until}, the {what}"
                    break
        differ.append(difference is not None)
        of = f"{each.run}: " if len(claims) > 1 else ""
        if difference is None:
            text = f"{of}from {interval}: {len(old)} records agree ({seconds:.1f} s)"
            (output.verdict if len(claims) > 1 else output.line)(text)
        elif isinstance(difference, str):
            output.verdict(f"NOT VERIFIED: {of}{difference} has other bits (from {interval})")
        else:
            counts = f"{difference.differing} of {difference.recorded} records differ"
            output.verdict(f"NOT VERIFIED: {of}{difference}: {difference.what} (from {interval}: {counts})")
        output.facts.setdefault("executed", []).append(
            {
                "run": str(each.run), "repeat": interval.repeat, "after": interval.after, "until": interval.until,
                "records": len(old), "agrees": difference is None,
                "difference": None if difference is None else str(difference), "seconds": seconds,
            }
        )  # fmt: skip
    return differ[0] or len(claims) > 1


def _conclude(claims: list[Claim], executed: list[Interval], code: int, output: VerifyOutput) -> None:
    """Print the verdict and the parts of the run that no head covers; with --json, the document."""
    run = claims[0]
    found = uncovered(run.checked)
    if len(claims) == 1:
        skipped = [each for each in run.intervals if each not in executed]
        found += [Uncovered("interval", f"from {each}", "not executed again") for each in skipped]
    if "published" not in output.facts:
        found.append(
            Uncovered(
                "heads",
                "published",
                "The heads were not compared with published ones: give --published FILE.",
            )
        )
    if len(claims) == 1 and code == AGREES:
        output.verdict(
            f"VERIFIED: {len(executed)} of {len(run.intervals)} intervals of {run.run} agree in every bit"
        )
        for line in sentences(found):
            output.line(line)
    output.facts |= {
        "run": str(run.run),
        "against": str(claims[1].run) if len(claims) > 1 else None,
        "intervals": len(run.intervals),
        "not_covered": [asdict(each) for each in found],
    }
    output.conclude(code)


def _require_checkpoints(chosen: list[Interval]) -> None:
    for interval in chosen:
        if interval.start is not None and not interval.start.is_file():
            raise NotVerifiable(
                f"{interval.start}: no such checkpoint, and the draw contains the interval from {interval}; copy the "
                "checkpoint there"
            )


def _make_directory(out: Path) -> None:
    """Create the directory of the executed intervals. Raises NotVerifiable if it is not empty or cannot be created."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        used = next(out.iterdir(), None)
    except OSError as error:
        raise NotVerifiable(f"--out {out}: {error.strerror}; choose a new or an empty directory") from error
    if used:
        raise NotVerifiable(f"--out {out}: not empty, it has {used.name}; choose a new or an empty directory")


def _launched(ranks: int, argv: list[str]) -> int:
    """Start this command on `ranks` ranks; returns its exit code."""
    beside = Path(sys.executable).parent / "mpirun"
    mpirun = str(beside) if beside.exists() else shutil.which("mpirun")
    if mpirun is None:
        return _refuse(
            f"--ranks {ranks}: no mpirun beside this python or on PATH; start this command with your own launcher"
        )
    command = [mpirun, "-n", str(ranks), *module("miniapps", "verify", *argv)]
    return relay(command, os.environ | {"PYTHONUNBUFFERED": "1"})


def _refuse(message: str, comm: Any = None) -> int:
    if speaks() if comm is None else comm.rank == 0:
        tell(f"verify: {printable(message)}", sys.stderr)
    return NOT_VERIFIABLE
