"""`python -m analysis lint`."""

from __future__ import annotations

import argparse

from analysis.commands.choice import EQUAL, Usage, add_csv, export, loaded, require_directory, warn

SUMMARY = "what the runs do not support: rules of careful benchmarking, checked"
DETAIL = """\
Rules after Hoefler and Belli, SC'15. Findings are advice: the exit code is 0 however many there are."""
EXAMPLES = """\
  python -m analysis lint runs/"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    parser.add_argument("runs", nargs="+", metavar="RUN")
    add_csv(parser)


def run(options: argparse.Namespace) -> int:
    """Print what limits the conclusions from the runs."""
    from analysis.lint.rules import RULES, lint
    from analysis.overview import Overview
    from analysis.page.terminal import printer

    require_directory("--csv", options.csv)
    frames = loaded(options, options.runs)
    warn(frames)
    if frames.runs.empty:
        raise Usage(f"no usable run in {', '.join(map(str, options.runs))}; the reasons are above")
    findings = lint(Overview(frames))
    say = printer()
    say(f"{len(findings)} findings by {findings['rule'].nunique()} of {len(RULES)} rules.", bold=True)
    for row in findings.itertuples(index=False):
        say()
        say(f"{row.severity}: {row.found}")
        say(f"  {'rule':<9}{row.rule}; concerns: {row.section}")
        say(f"  {'where':<9}{row.where}")
        say(f"  {'do':<9}{row.remedy}")
    export(options, {"findings": findings}, say)
    return EQUAL
