"""`python -m analysis ask`."""

from __future__ import annotations

import argparse

from analysis.commands.answer import Answer, Bold, Part, give
from analysis.commands.choice import loaded, none_usable, warn
from analysis.errors import Usage
from kernels.as_json import Document, rows
from miniapps.untrusted.text import printable

SUMMARY = "which command answers a question in words, by what is in the runs"
DETAIL = """\
Three commands of this suite with runs, steps, ranks and factors filled in, the likeliest first, and what in the
traces speaks for each. Evidence counts more than words. With --run the first is run, if it is a command of the
analysis, and the exit code is its own."""
EXAMPLES = """\
  python -m analysis ask "my loss differs after a restart" runs/whole runs/restarted
  python -m analysis ask "why is it slow" runs/ --run"""
OWN = ("python", "-m", "analysis")
NAMED = 3  # commands that the answer names

DOCUMENTS = {
    "ask": Document(
        rows=(
            rows(
                "questions",
                "the commands, the likeliest first",
                """
            place | integer | from 1
            template command because | text | the question; the command line; the reason
            argv | list of text | the words of the command
            chance | number | probability that this command answers the question
            runs | list of text | directories of the runs that the command reads
            step block rank | integer? | the place in the run, where known
            factor | text? | of `variability --by`
            """,
            ),
        )
    ),
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    parser.add_argument("words", metavar="WORDS", help="the question, in quotes; it may be empty")
    parser.add_argument("runs", nargs="+", metavar="RUN")
    parser.add_argument("--run", action="store_true", help="run the first command")


def run(options: argparse.Namespace) -> Answer:
    """Answers with the NAMED likeliest commands; --run also runs the first."""
    import pandas as pd

    from analysis.ask.probes import evidence
    from analysis.ask.rank import ranked, telling

    if options.run and options.json:
        raise Usage("--run and --json exclude each other: run the command itself with --json")
    frames = loaded(options, options.runs)
    warn(frames)
    if frames.runs.empty:
        raise none_usable(options)
    likeliest = ranked(evidence(frames), options.words)[:NAMED]
    shown: list[Part] = []
    rows = []
    for place, (question, chance) in enumerate(likeliest, start=1):
        shown += [Bold(f"{place}. {question.command}"), f"   because: {question.because}"]
        slots = {"step": None, "block": None, "rank": None, "factor": None} | question.slots
        rows.append(
            {"place": place, "template": question.template, "command": question.command,
             "argv": [*map(printable, question.argv)], "because": question.because, "chance": chance,
             **slots, "runs": [*map(printable, question.slots["runs"])]}
        )  # fmt: skip
    table = pd.DataFrame(rows).astype(dict.fromkeys(("step", "block", "rank"), "Int64"))
    notes = []
    if not options.words.strip():
        notes.append("Note: nothing was asked: these go by what is in the runs alone.")
    elif not telling(options.words):
        notes.append(
            "Note: no command answers to any of these words: these go by what is in the runs alone. Say what is to be "
            "known, such as: differ, restart, ranks, slow, noisy, grow, tampered."
        )
    answer = Answer(frames, {"questions": table}, shown, notes)
    if not options.run:
        return answer
    give(answer, options)
    return _run(likeliest[0][0].argv, options)


def _run(argv: tuple[str, ...], options: argparse.Namespace) -> Answer:
    """Runs a command of the analysis; the answer has its exit code."""
    from analysis.__main__ import main

    if argv[: len(OWN)] != OWN:
        raise Usage("--run: the first is no command of the analysis, and no other is run; run it yourself")
    print(flush=True)
    more = ["--no-cache"] * options.no_cache + ["--quiet"] * options.quiet + ["--verbose"] * options.verbose
    return Answer(None, {}, [], code=main([*argv[len(OWN) :], *more]))
