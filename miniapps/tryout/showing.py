"""The findings of `fpna try`, as text and as JSON."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from kernels.threads import cores
from miniapps.system import environment
from miniapps.tryout.launches import Launched
from miniapps.tryout.ranks import CALL, COUNT, LENGTH, PLACE, RANK

WORDS = {
    COUNT: "the number of ranks",
    LENGTH: "the length of the vector",
    PLACE: "which process has which rank",
    RANK: "the rank: ranks hold different bits",
    CALL: "the call: the same numbers have other sums from call to call",
}
YES = {True: "yes", False: "no", None: "not tried"}


@dataclass(frozen=True)
class Found:
    """The findings: `ranks` and `library` from `miniapps.tryout.ranks`, None without ranks; `processes` from
    `miniapps.tryout.sums`; `left_out`: a sentence for each missing finding; `launched`: the launches."""

    ranks: dict[str, Any] | None
    library: dict[str, Any] | None
    processes: list[dict[str, Any]]
    left_out: list[str]
    launched: Launched
    seconds: float

    @property
    def results(self) -> int:
        """The number of different results of the library's sums."""
        return len({each["library"] for each in self.ranks["sums"]}) if self.ranks else 0

    @property
    def results_layout(self) -> int:
        """The number of different results under the guarantee `layout`."""
        return len({each["layout"] for each in self.ranks["sums"]}) if self.ranks else 0

    @property
    def broken(self) -> bool:
        """Whether the guarantee `layout` was broken."""
        return self.results_layout > 1

    def text(self) -> str:
        """All findings, for a terminal."""
        head = f"{environment.cpu_model()}, {_count(cores(), 'core')} for this process"
        blocks = [[head], self._ranks(), self._library(), self._processes(), self._left_out(), self._next()]
        return (
            "\n\n".join("\n".join(block) for block in blocks if block) + f"\n\n{self.seconds:.0f} s in all."
        )

    def _ranks(self) -> list[str]:
        if self.ranks is None:
            return []
        sums = self.ranks["sums"]
        sizes = listed([each["ranks"] for each in sums])
        lines = [
            f"1  The sum of {self.ranks['numbers']:,} numbers on {sizes} ranks:  {_count(self.results, 'result')},  "
            f"{self.results_layout} under the guarantee layout" + (": BROKEN PROMISE" if self.broken else "")
        ]
        rows = [(f"{each['ranks']} ranks", each["library"]) for each in sums]
        layouts: dict[str, list[int]] = {}
        for each in sums:
            layouts.setdefault(each["layout"], []).append(each["ranks"])
        rows += [(f"{listed(own)} ranks, layout", value) for value, own in layouts.items()]
        width = max(len(name) for name, _ in rows)
        return lines + [f"     {name:{width}}   {float.fromhex(value)!r}" for name, value in rows]

    def _library(self) -> list[str]:
        if self.library is None:
            return []
        found = self.library
        lines = [f"2  The all-reduce of {found['library']} on {found['ranks']} ranks:  {_order(found)}"]
        if followed := [words for name, words in WORDS.items() if found["follows"].get(name)]:
            lines.append(f"     its bits follow {listed(followed)}")
        # Finding 1 covers the number of ranks: there the shares differ, and with them the sums in any ordering.
        kept = [name for name in WORDS if name != COUNT and found["follows"].get(name) is False]
        if fixed := [WORDS[name].partition(":")[0] for name in kept]:
            lines.append(f"     {'they' if followed else 'its bits'} did not follow {listed(fixed, 'or')}")
        return lines

    def _processes(self) -> list[str]:
        if not self.processes:
            return []
        rows = [("3  Sums in one process", "", "lanes", "bits follow alignment", "bits follow threads")]
        for entry in self.processes:
            follows = _follows(entry)
            threads = listed(entry["threads"]) if len(entry["threads"]) > 1 else ""
            rows.append((
                f"     {entry['what']}, {entry['dtype']}", entry["library"], _lanes(entry), YES[follows["alignment"]],
                YES[follows["threads"]] + (f" ({threads})" if threads else ""),
            ))  # fmt: skip
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]

    def _left_out(self) -> list[str]:
        lines = [f"   {each}" for each in self._reasons()]
        return ["Left out", *lines] if lines else []

    def _reasons(self) -> list[str]:
        launched = self.launched
        reasons = list(self.left_out)
        numbers = [name for name, found in (("1", self.ranks), ("2", self.library)) if found is None]
        if numbers:
            of = f"finding{'s' * (len(numbers) > 1)} {' and '.join(numbers)}"
            why = "; ".join(launched.refused) + (f": {launched.remedy}" if launched.remedy else "")
            reasons.insert(0, f"{of}: {why}")
        else:
            reasons += [f"launcher {each}" for each in launched.refused]
        return reasons

    def _next(self) -> list[str]:
        rows = self.next()
        width = max(len(each["for"]) for each in rows)
        return ["Next", *(f"   {each['for']:{width}}   {each['command']}" for each in rows)]

    def next(self) -> list[dict[str, str]]:
        """The next commands, for each kind of user."""
        launcher = self.launched.launcher
        start = f"{launcher.advised if launcher else 'mpirun'} "
        rows = []
        if not self.ranks:
            rows.append({"for": "ranks on this machine", "command": "fpna doctor; fpna try"})
        if launcher and launcher.libmpi:
            rows.append(
                {
                    "for": "mpi4py with this launcher",
                    "command": f"export MPI4PY_LIBMPI={launcher.libmpi}"
                    + ("; unset MPI4PY_MPIABI" if "MPI4PY_MPIABI" in os.environ else ""),
                }
            )
        rows += [
            {"for": "your MPI program", "command": f"{start}-n 4 fpna run -- ./your_app"},
            {"for": "your mpi4py program", "command": 'comm = fpna.wrap(MPI.COMM_WORLD, "layout")'},
            {"for": "your PyTorch training", "command": "fpna.watch(model, recording)"},
            {
                "for": "this suite's mini-apps",
                "command": f"{start}-n 4 fpna coupled" + ("" if find_spec("torch") else " --closure physics"),
            },
        ]
        return rows

    def entry(self) -> dict[str, Any]:
        """The JSON document `try`."""
        launcher = self.launched.launcher
        return {
            "cpu": environment.cpu_model(), "cores": cores(), "seconds": self.seconds,
            "results": self.results if self.ranks else None,
            "results_layout": self.results_layout if self.ranks else None,
            "launcher": " ".join(launcher.words) if launcher else None,
            "libmpi": launcher.libmpi or None if launcher else None,
            "library": self.library and {key: value for key, value in self.library.items() if key != "finding"},
            "tables": {
                "sums": [each | {"library": float.fromhex(each["library"]), "layout": float.fromhex(each["layout"])}
                         for each in (self.ranks["sums"] if self.ranks else ())],
                "processes": [
                    {key: entry[key] for key in ("what", "library", "dtype", "kind", "lanes", "depth", "threads")}
                    | {f"follows_{name}": value for name, value in _follows(entry).items()}
                    for entry in self.processes
                ],
                "next": self.next(),
            },
            "left_out": self._reasons(),
        }  # fmt: skip


def _follows(entry: dict[str, Any]) -> dict[str, bool | None]:
    """Whether the bits of a sum changed with alignment and threads; None if only one number of threads was tried."""
    counts = entry["by_threads"]
    return {
        "alignment": any(len(set(sums)) > 1 for sums in entry["alignments"]),
        "threads": any(each != counts[0] for each in counts) if len(counts) > 1 else None,
    }


def _lanes(entry: dict[str, Any]) -> str:
    if entry["kind"] != "tree":
        return str(entry["kind"])
    if entry["lanes"] is None:
        return f"a tree of depth {entry['depth']}"
    return "left to right" if entry["lanes"] == 1 else str(entry["lanes"])


def _order(found: dict[str, Any]) -> str:
    """A phrase that names the ordering of an all-reduce."""
    if found["ranks"] == 2:
        return "two ranks have only one order"
    if found["follows"][CALL]:
        return "adds in no fixed order"
    names = found["orderings"]
    parts = [
        (f"as {each['ordering']}" if each["ordering"] else "in a fixed order of its own")
        + (f" for {span(each['lengths'])}" if len(names) > 1 else "")
        for each in names
    ]
    return f"adds {', '.join(parts)}"


def span(lengths: Sequence[int]) -> str:
    """`1 to 1000 elements`."""
    ends = f"{lengths[0]:,}" if len(lengths) == 1 else f"{lengths[0]:,} to {lengths[-1]:,}"
    return f"{ends} element{'s' * (list(lengths) != [1])}"


def listed(items: Sequence[object], word: str = "and") -> str:
    """`2, 3 and 4`."""
    words = [str(item) for item in items]
    return f" {word} ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _count(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"
