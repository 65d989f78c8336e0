"""`python -m analysis chain`."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from analysis.commands.answer import Answer, Bold, Shown
from analysis.commands.choice import DIFFERENT, EQUAL, Usage

SUMMARY = "whether the heads of a run follow from what it recorded"
DETAIL = """\
Every checkpoint of a run, and its end, has a head: a hash over all rows of the trace before it, whoever recorded them,
and over the checkpoint. All of them are computed again, from the traces of all ranks and the checkpoints that are
there, and compared with those of the trace, of result.json, and, with --published, of the lines that the run printed.
Exit code 3 names the first head that is wrong. Who can write the files can make another chain: only heads that were
published in time show that."""
EXAMPLES = """\
  python -m analysis chain runs/a
  python -m analysis chain runs/a --published output-of-the-job.txt"""

PUBLISHED_MOST = 2**26  # bytes of the output of a job
LINE = re.compile(
    r"^CHAIN step=([0-9]{1,10}) head=([0-9a-f]{64})(?: repeat=([0-9]{1,10}))?\s*$", re.MULTILINE
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    parser.add_argument("run", metavar="RUN", type=Path, help="the directory of one run")
    parser.add_argument(
        "--published",
        type=Path,
        metavar="FILE",
        help="text with the lines CHAIN step=S head=H that the run printed",
    )


def run(options: argparse.Namespace) -> Answer:
    """The heads of a run, computed again; exit code 0 if all are as recorded."""
    import pandas as pd

    from miniapps.trace.heads import check

    known, broken = check(options.run)
    others = {} if options.published is None else _published(options.published)
    wrong = {each.mark.repeat: each for each in broken}
    shown: list[Shown] = []
    rows = []
    code = EQUAL
    several = len(known) > 1
    for chain in known:
        of = f" of repeat {chain.repeat}" if several else ""
        after = chain.begin[0]
        if after >= 0:
            shown.append(f"It continues from the checkpoint of step {after}, head {chain.begin[1]}.")
        bad = wrong.get(chain.repeat)
        for mark in chain.marks:
            printed = others.get((mark.repeat, mark.step))
            why = bad.why if bad is not None and bad.mark == mark else ""
            if not why and printed not in (None, mark.head):
                why = f"the head is {mark.head}, and {printed} was published"
            verdict = "wrong" if why else "right"
            rows.append((mark.repeat, mark.step, mark.head, mark.checkpoint, verdict))
            if why:
                code = DIFFERENT
                shown.append(
                    Bold(f"step {mark.step}{of}: {why}; it is over the steps {after + 1} to {mark.step}.")
                )
                break
            after = mark.step
    lacking = sorted(others.keys() - {(mark.repeat, mark.step) for chain in known for mark in chain.marks})
    if lacking and code == EQUAL:
        code = DIFFERENT
        shown.append(Bold(f"step {lacking[0][1]}: a head was published, and the run has none there."))
    if code == EQUAL:
        last = known[-1].marks[-1]
        count = sum(len(chain.marks) for chain in known)
        shown.append(
            Bold(
                f"{count} heads follow from what was recorded; the last is {last.head}, of step {last.step}."
            )
        )
    elif not several and rows:
        shown.append(f"{len(rows) - 1} heads before it are right.")
    notes = []
    if options.published is None:
        notes.append("Note: a chain shows what was changed after its heads were published: --published FILE.")
    table = pd.DataFrame(rows, columns=["repeat", "step", "head", "checkpoint", "verdict"])
    return Answer(None, {"heads": table}, shown, notes, code=code)


def _published(path: Path) -> dict[tuple[int, int], str]:
    """{(repeat, step): head} of the lines in a file. Raises Usage where there are none."""
    from miniapps.received import Refused, read_text

    try:
        text = read_text(path, PUBLISHED_MOST, links=True)
    except Refused as error:
        raise Usage(f"--published {error}") from error
    except OSError as error:
        raise Usage(
            f"--published {path}: cannot be read: {error.strerror}; give the output of the run"
        ) from error
    heads = {(int(repeat or 0), int(step)): head for step, head, repeat in LINE.findall(text)}
    if not heads:
        raise Usage(f"--published {path}: no line CHAIN step=S head=H in it; give the output of the run")
    return heads
