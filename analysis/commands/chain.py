"""`python -m analysis chain`."""

from __future__ import annotations

import argparse
from pathlib import Path

from analysis.commands.answer import Answer, Bold, Part
from analysis.commands.choice import DIFFERENT, EQUAL
from analysis.errors import Usage
from kernels.as_json import Document, rows

SUMMARY = "whether the heads of a run follow from what it recorded"
DETAIL = """\
Every checkpoint of a run, and its end, has a head: a hash over all rows that any rank recorded before it,
and over the checkpoint or the final state. All of them are computed again, from the traces of all ranks and the
checkpoints that are there, and compared with those of the trace, of result.json, and, with --published, of the lines
that the run printed. Of a run that goes on or was cut off, heads are compared as far as every rank has written all
rows. Exit code 3 names the first head that is wrong, or what contradicts what; 2: files of several runs are mixed, or
nothing can be compared. Who can write the files can make another chain: only heads that were published in time show
that. What no head is over is listed."""
EXAMPLES = """\
  python -m analysis chain runs/a
  python -m analysis chain runs/a --published output-of-the-job.txt"""

DOCUMENTS = {
    "chain": Document(
        rows=(
            rows(
                "heads",
                "a row per head, up to the first that is wrong",
                """
            repeat step | integer | all rows up to this step are before it
            head checkpoint | text | SHA-256 in hex; `checkpoint` empty at the end of a repeat
            verdict | text | `right`, or `wrong`
            """,
            ),
            rows(
                "published",
                "a row per head that was published or that the run has; empty without `--published`",
                """
            repeat step | integer | of the head
            compared | text | `equal`; `other`: another head was published; `not published`; `absent`: published,
              and the run has none; `before` the checkpoint that the run continues from; `later` than what could be
              compared
            """,
            ),
            rows(
                "not_covered",
                "a row per part of the run that no head is over",
                """
            kind | text | `table`, `column`, `rows`, `attribute` of the trace, `result` (a key of `result.json`),
              `file`, `steps`
            name what | text | which one; what it is in words, empty where the name says it
            """,
            ),
        )
    ),
}


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
    """Recomputes the heads of a run; exit code 0 if all are as recorded."""
    import pandas as pd

    from analysis.load.guard import guarded
    from miniapps.trace.checked import check
    from miniapps.trace.published import Compared, compare, read_published
    from miniapps.trace.uncovered import sentences, uncovered
    from miniapps.untrusted import Refused

    try:
        published = None if options.published is None else read_published(options.published)
    except Refused as error:
        raise Usage(f"--published {error}") from error
    checked = check(options.run, guarded)
    compared = Compared() if published is None else compare(published, checked)
    wrong = {each.mark.repeat: each for each in checked.broken}
    others = {mark: head for mark, head in compared.other}
    shown: list[Part] = []
    rows = []
    code = EQUAL
    several = len(checked.chains) > 1
    for chain in checked.chains:
        of = f" of repeat {chain.repeat}" if several else ""
        after = chain.begin[0]
        if after >= 0:
            shown.append(f"It continues from the checkpoint of step {after}, head {chain.begin[1]}.")
        bad = wrong.get(chain.repeat)
        for mark in chain.marks:
            why = bad.why if bad is not None and bad.mark == mark else ""
            if not why and mark in others:
                why = f"the head is {mark.head}, and {others[mark]} was published"
            verdict = "wrong" if why else "right"
            rows.append((mark.repeat, mark.step, mark.head, mark.checkpoint, verdict))
            if why:
                code = DIFFERENT
                shown.append(
                    Bold(f"step {mark.step}{of}: {why}; it is over the steps {after + 1} to {mark.step}.")
                )
                break
            after = mark.step
    if code == EQUAL:
        against = [*checked.contradictions, *compared.wrong]
        shown += [Bold(f"{sentence}.") for sentence in against]
        code = DIFFERENT if against else EQUAL
    last = checked.marks[-1]
    if code == EQUAL:
        if published is not None and not compared.equal:
            raise Usage(f"--published: nothing was compared: {compared.sentence(published)}")
        count = len(checked.marks)
        head = f"{count} heads follow" if count > 1 else "1 head follows"
        shown.append(Bold(f"{head} from the records; the last is {last.head}, of step {last.step}."))
    elif not several and rows and rows[-1][-1] == "wrong":
        shown.append(f"{len(rows) - 1} heads before it are right.")
    if checked.cut:
        shown.append(checked.cut)
    if published is not None:
        shown.append(f"{compared.sentence(published)}")
    found = uncovered(checked)
    shown += sentences(found)
    notes = []
    if published is None:
        notes.append("Note: --published FILE shows changes since the heads were published.")
    tables = {
        "heads": pd.DataFrame(rows, columns=["repeat", "step", "head", "checkpoint", "verdict"]),
        "published": pd.DataFrame(_published(compared), columns=["repeat", "step", "compared"]),
        "not_covered": pd.DataFrame(
            [(each.kind, each.name, each.what) for each in found], columns=["kind", "name", "what"]
        ),
    }
    return Answer(None, tables, shown, notes, code=code)


def _published(compared) -> list[tuple[int, int, str]]:
    """(repeat, step, result of the comparison) of each head that was published or that the run has."""
    rows = [(mark.repeat, mark.step, "equal") for mark in compared.equal]
    rows += [(mark.repeat, mark.step, "other") for mark, _ in compared.other]
    rows += [(mark.repeat, mark.step, "not published") for mark in compared.unpublished]
    rows += [(*place, "other") for place, _, _ in compared.begins]
    for word in ("absent", "before", "later"):
        rows += [(*place, word) for place in getattr(compared, word)]
    return sorted(rows)
