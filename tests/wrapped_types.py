"""The tables of types in docs/tutorials/own-programs.md: `python -m tests.wrapped_types` tries every cell again
and writes them.

tests/mpi/programs/wrapped_types.py does so on two ranks of MPICH: every type of NumPy, torch and MPI x reduction x
operation x guarantee, against exact arithmetic.
"""

import json
from pathlib import Path

from tests.launch import run_mpi

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "tutorials" / "own-programs.md"
PROGRAM = ROOT / "tests" / "mpi" / "programs" / "wrapped_types.py"
BEGIN, END = "<!-- types -->\n", "<!-- /types -->\n"
LEVELS = ("none", "run", "layout", "exact")
OPERATIONS = ("SUM", "PROD", "MIN, MAX", "MAXLOC, MINLOC", "LAND, LOR, LXOR", "BAND, BOR, BXOR")
GROUPS = (
    ("Allreduce", "Iallreduce", "Reduce", "Ireduce", "Reduce_scatter_block", "Ireduce_scatter_block", "Reduce_scatter",
     "Ireduce_scatter"),
    ("allreduce", "reduce"),
    ("Scan", "Exscan", "Iscan", "Iexscan", "Allreduce_init", "Reduce_init", "Reduce_scatter_block_init",
     "Reduce_scatter_init", "Scan_init", "Exscan_init"),
    ("scan", "exscan"),
)  # fmt: skip


def measured(*options):
    """{type: {call: {operation: {guarantee: outcome}}}}, tried on two ranks."""
    run = run_mpi(2, [str(PROGRAM), *options], timeout=1500)
    assert run.returncode == 0, run.stdout + run.stderr
    return json.loads(run.stdout)


def wrong(table):
    """The cells that are neither right nor refused."""
    return [
        f"{kind} {call} {operation} {level}: {outcome}"
        for kind, calls in table.items()
        for call, operations in calls.items()
        for operation, outcomes in operations.items()
        for level, outcome in outcomes.items()
        if outcome not in ("right", "refused", "MPI refuses")
    ]


def cell(outcomes):
    """The guarantees under which a call gives the right value; a dash where MPI itself has no such reduction."""
    right = [level for level in LEVELS if outcomes[level] == "right"]
    if len(right) == len(LEVELS):
        return "all"
    if not right and outcomes["none"] == "MPI refuses":
        return "–"
    return ", ".join(right) or "refused"


def block(table):
    """The tables in Markdown: one for reductions that are treated alike, a row for types that are alike in them."""
    lines = []
    for calls in GROUPS:
        rows = {}
        for kind, own in table.items():
            alike = {}  # calls of this type that are alike
            for call in filter(own.__contains__, calls):
                row = tuple(
                    cell(own[call][operation]) if operation in own[call] else "–" for operation in OPERATIONS
                )
                alike.setdefault(row, []).append(call)
            for row, same in alike.items():
                named = kind if len(alike) == 1 else f"{kind} in {' and '.join(f'`{call}`' for call in same)}"
                rows.setdefault(row, []).append(named)
        operations = OPERATIONS if calls[0][0].isupper() else OPERATIONS[:4]
        lines += [", ".join(f"`{call}`" for call in calls) + ":", "", f"| type | {' | '.join(operations)} |"]
        lines += ["|---" * (1 + len(operations)) + "|"]
        lines += [
            f"| {', '.join(kinds)} | {' | '.join(row[: len(operations)])} |" for row, kinds in rows.items()
        ]
        lines += [""]
    return "\n".join(lines)


def documented():
    """The tables as the page has them."""
    return PAGE.read_text().partition(BEGIN)[2].partition(END)[0]


def rows_of(text):
    """{(calls, type): cells} of tables."""
    found, calls = {}, ""
    for line in text.splitlines():
        calls = line if line.startswith("`") else calls
        if line.startswith("| ") and not line.startswith("| type"):
            kinds, *row = [word.strip() for word in line.strip("|").split(" | ")]
            found |= {(calls, kind): row for kind in kinds.split(", ")}
    return found


if __name__ == "__main__":
    tried = measured()
    assert not wrong(tried), "\n".join(wrong(tried))
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(before + BEGIN + block(tried) + END + rest.partition(END)[2])
