"""The table of all commands of `fpna`: purpose, function that runs the command, and parser for shell completion."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import import_module

from analysis.commands import COMMANDS as ANALYSIS
from analysis.commands import command
from kernels.commands.options import add_version
from miniapps import applications

# {command: (what runs it, what it is for)}. The module has main(argv, prog) and parser(prog), or parser_of(words, prog)
# where words choose the parser.
OTHERS = {
    "try": ("miniapps.tryout.command", "three findings about the sums of this machine, in seconds"),
    "run": ("miniapps.programs.observing", "record a program in any language: mpirun -n 4 fpna run -- ./app"),
    "config": (
        "miniapps.programs.config",
        "link a program with reproducible sums: mpicc app.c $(fpna config --cflags --libs)",
    ),
    "jobs": ("jobs.__main__", "campaigns and batch scripts: plan, run, submit, collect"),
    "kernels": ("kernels.__main__", "orderings, sums and products as instruments: allreduce, sums, contract"),
    "partition": (
        "miniapps.partition.commands",
        "plan a training step, of your own module too, over a mesh of ranks, and execute it",
    ),
    "sharding": (
        "miniapps.dlrm.commands",
        "the fastest sharding of DLRM's tables, before any run, by calibrated kernels and messages",
    ),
    "identify": (
        "kernels.commands.identify",
        "the order in which MPI's or torch's all-reduce adds: mpirun -n 6 fpna identify",
    ),
    "cpus": ("miniapps.cpus.command", "would another processor change the results? fpna cpus -- ./app"),
    "cause": ("miniapps.cause.command", "rounding or a bug? an experiment: fpna cause A B -- ./app"),
    "cost": ("miniapps.cost.command", "how many times as long B takes as A, by paired launches"),
    "verify": (
        "miniapps.verify.command",
        "execute parts of a run again, on any number of ranks, and compare every bit",
    ),
    "doctor": ("miniapps.doctor", "what this machine has, what is missing, and how to get it"),
    "demo": ("miniapps.demo", "runs that differ and runs that agree, and the report on them"),
}
# The groups of `fpna --help`. Empty: for the applications, then for the commands of the analysis, in no other group.
GROUPS = {
    "start here": ("try", "doctor", "demo"),
    "a program of yours": ("run", "cause", "cpus", "cost", "config"),
    "a library of this machine": ("identify",),
    "do two runs agree, and why not": (
        "divergence",
        "variability",
        "report",
        "show",
        "verify",
        "chain",
        "lint",
        "ask",
    ),
    "applications, under mpirun: mpirun -n 4 fpna coupled": (),
    "how long will it take": ("predict", "price", "score", "sharding", "partition"),
    "one question, from what runs recorded": (),
    "more": ("jobs", "kernels", "export"),
}


def names() -> tuple[str, ...]:
    """Every command."""
    return (*applications.names(), *ANALYSIS, *OTHERS)


def summaries() -> dict[str, dict[str, str]]:
    """{heading: {command: what it is for}}, of every command."""
    every = {name: applications.app(name).summary for name in applications.names()}
    every |= {name: command(name).SUMMARY for name in ANALYSIS} | {
        name: text for name, (_, text) in OTHERS.items()
    }
    grouped = {name for group in GROUPS.values() for name in group}
    ungrouped = (
        tuple(name for name in every if name not in grouped and (name in ANALYSIS) == analysed)
        for analysed in (False, True)
    )
    return {
        heading: {name: every[name] for name in group or next(ungrouped)} for heading, group in GROUPS.items()
    }


def runs(name: str) -> Callable[[list[str]], int] | None:
    """What runs a command by the arguments after its name; None where there is no such command."""
    if name in applications.names():
        from miniapps.runner.main import main as run

        return lambda argv: run(replace(applications.app(name), command=f"fpna {name}"), argv)
    if name in ANALYSIS:
        return lambda argv: import_module("analysis.__main__").main([name, *argv], "fpna")
    if name in OTHERS:
        return lambda argv: import_module(OTHERS[name][0]).main(argv, f"fpna {name}")
    return None


def parser_of(words: Sequence[str]) -> tuple[argparse.ArgumentParser, int]:
    """The parser of the line `fpna WORDS ...`, and how many of the words stand before what it parses."""
    name = words[0] if words else ""
    if name in applications.names():
        from miniapps.runner.commandline import parser as of_application

        return of_application(applications.app(name)), 1
    if name in ANALYSIS:
        return import_module("analysis.__main__").parser("fpna"), 0
    if name in OTHERS:
        module = import_module(OTHERS[name][0])
        if hasattr(module, "parser_of"):
            parser, before = module.parser_of(words[1:], f"fpna {name}")
            return parser, 1 + before
        return module.parser(f"fpna {name}"), 1
    choosing = argparse.ArgumentParser(prog="fpna")
    add_version(choosing)
    choosing.add_argument("command", choices=names())
    return choosing, 0
