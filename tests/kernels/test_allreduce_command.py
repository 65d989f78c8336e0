"""`python -m kernels.allreduce`, without MPI: its output, and its errors."""

import json
import math
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from kernels import wires
from kernels.allreduce.accumulate import ACCUMULATIONS
from kernels.allreduce.catalog import get, orderings
from kernels.allreduce.cost import cost
from kernels.allreduce.tree import trees
from kernels.commands import allreduce as command
from kernels.commands.allreduce import main
from kernels.tree import expression

ROOT = Path(__file__).parents[2]


def printed(capsys, line):
    """What a command line prints; it must succeed."""
    assert main(shlex.split(line)) == 0
    return capsys.readouterr().out


def test_no_command_lists_the_orderings(capsys):
    text = printed(capsys, "")
    assert text == printed(capsys, "list")
    shown, _, held = text.partition("\naccumulation ")
    heads = [line.split()[:2] for line in shown.splitlines()[1:] if line[0] != " "]
    assert heads == [[o.name, o.guarantee] for o in orderings()]
    held, _, encoded = held.partition("\nwire ")
    assert [line.split()[0] for line in held.splitlines()[1:]] == list(ACCUMULATIONS)
    assert [re.split(r"\s{2,}", line)[0] for line in encoded.splitlines()[1:]] == [
        *wires.SUMMARIES,
        *wires.LOSSY,
    ]
    assert re.search(
        r"^permuted .*\n(?: .*\n)+ +Parameters: seed=0 \(0 to 9223372036854775807\)\.$", text, re.MULTILINE
    )


def test_the_list_is_there_for_programs_too(capsys):
    listing = json.loads(printed(capsys, "list --json"))
    entries = {entry["name"]: entry for entry in listing["orderings"]}
    assert list(entries) == [o.name for o in orderings()]
    assert entries["direct"]["short"] and entries["direct"]["scheduled"]
    assert not entries["library"]["scheduled"] and entries["library"]["guarantee"] == "none"
    held = {entry["name"]: entry["guarantee"] for entry in listing["accumulations"]}
    assert list(held) == list(ACCUMULATIONS) and held["exact"] == "exact" and held["working"] is None
    assert [entry["name"] for entry in listing["wires"]] == [*wires.SUMMARIES, *wires.LOSSY]


@pytest.mark.parametrize(
    "line, text",
    [
        ("tree ring -n 4 --element 1", "(((x[1] + x[2]) + x[3]) + x[0])"),
        ("tree ring -n 4 --length 8 --element 2", "(((x[1] + x[2]) + x[3]) + x[0])"),
        ("tree recursive-doubling -n 6", "(((x[0] + x[1]) + (x[2] + x[3])) + (x[4] + x[5]))"),
        ("tree arrival -n 3 --order 0,2,1", "((x[0] + x[2]) + x[1])"),
        ("tree direct -n 3 --short", "((x[0] + x[1]) + x[2])"),
        ("tree linear -n 1", "x[0]"),
    ],
)
def test_trees_are_printed_as_expressions(capsys, line, text):
    assert printed(capsys, line) == text + "\n"


@pytest.mark.parametrize("name", [o.name for o in orderings() if o.scheduled])
def test_trees_and_costs_are_those_of_the_schedule(capsys, name):
    context = {"nodes": (0, 0, 0, 1, 1), "owners": (0, 1, 2, 3, 4)}
    schedule = get(name).schedule(5, **context)
    n = max(5, schedule.chunks)
    assert printed(capsys, f"tree {name} -n 5").strip() in {
        expression(trees(schedule, 0, n)[rank]) for rank in range(5)
    }
    line = printed(capsys, f"cost {name} -n 5 --length 100 --dtype float32 --alpha 1 --beta 0 --gamma 0")
    c = cost(schedule, 100, 4)
    expected = [name, c.rounds, c.messages, c.bytes, c.critical_additions, f"{1e6 * c.critical_messages:.2f}"]
    assert line.splitlines()[1].split() == [str(x) for x in expected]


def test_costs_of_all_schedules_are_compared(capsys):
    lines = printed(capsys, "cost -n 4 --length 1000").splitlines()
    assert [line.split()[0] for line in lines[1:]] == [o.name for o in orderings() if o.scheduled]
    direct = next(line for line in lines if line.startswith("direct "))
    assert direct.split()[1:5] == ["2", "24", "48000", "750"]


def in_order(p):
    return 2 * (p - 1), 2 * (p - 1), p - 1


def in_parts(p, messages):
    return messages, 2 * (p - 1) / p, (p - 1) / p


# What docs/explanation/allreduce.md says that the busiest rank does: messages, vectors moved, vectors added. p is a
# power of k.
FORMULAS = {
    "binomial": lambda p: (2 * math.log2(p), 2 * math.log2(p), math.log2(p)),
    "direct": lambda p: in_parts(p, 2 * (p - 1)),
    "recursive-doubling": lambda p: (math.log2(p),) * 3,
    "recursive-multiplying:k=4": lambda p: (3 * math.log2(p) / 2,) * 3,
    "linear": in_order,
    "reverse": in_order,
    "permuted": in_order,
    "k-nomial:k=4": lambda p: (3 * math.log2(p), 3 * math.log2(p), 3 * math.log2(p) / 2),
    "rabenseifner": lambda p: in_parts(p, 2 * math.log2(p)),
    "ring": lambda p: in_parts(p, 2 * (p - 1)),
    "segmented-ring:segments=3": lambda p: in_parts(p, 2 * (p - 1) * 3),
    "two-level": lambda p: in_parts(p, 2 * (p // 2 + 2 - 2)),
    "block-tree": lambda p: in_parts(p, 2 * (p - 1)),
}


@pytest.mark.parametrize("name, formula", FORMULAS.items())
def test_the_formulas_of_the_documentation_are_what_the_schedules_do(name, formula):
    for size in (4, 16):
        n = 6 * size
        context = {"nodes": [2 * rank // size for rank in range(size)], "owners": range(size)}
        c = cost(get(name).schedule(size, **context), n, 1)
        costs = c.critical_messages, c.critical_bytes / n, c.critical_additions / n
        assert costs == pytest.approx(formula(size), rel=1e-12)


ROUNDS = {
    "direct": lambda p: 2,
    "recursive-multiplying:k=4": lambda p: math.log2(p) / 2,
    "double-tree:segments=3": lambda p: 2 * math.log2(p) + 3 - 1,
    "segmented-ring:segments=3": lambda p: 2 * (p + 3 - 2),
}


@pytest.mark.parametrize("name, formula", ROUNDS.items())
def test_the_rounds_of_the_documentation_are_those_of_the_schedules(name, formula):
    for size in (4, 16):
        assert len(get(name).schedule(size).program(0)) == formula(size)


MISTAKES = {
    "tree rnig": "unknown all-reduce ordering 'rnig': choose one of library",
    "tree exact": "'exact': it is an accumulation.*write 'direct in exact'.*--allreduce direct --accumulate exact",
    "tree 'ring in exactly'": "unknown accumulation 'exactly': choose one of working, float64",
    "tree 'library in exact'": "needs an all-reduce ordering with a schedule, not 'library': choose .*ring",
    "tree library": "library, algorithm, rank count, length and placement decide.*These have one: .*ring",
    "tree arrival": "'arrival' has no fixed tree",
    "tree linear:k=4": "linear takes no parameters",
    "tree ring --element 4": "--element 4: there is none in a vector of 4; choose 0 ... 3",
    "tree ring --element -1": "argument --element: choose 0 to 1099511627776, not '-1'",
    "tree ring --length 0": "choose a --length of 1 or more",
    "tree ring --length -1": "argument --length: choose 0 to 1099511627776, not '-1'",
    "tree ring --order 0,1,2,3": "--order is only for the ordering arrival",
    "tree arrival --order 0,1,1,2": "--order 0,1,1,2: .*no permutation of the ranks 0 ... 3",
    "tree ring --short": "--short: 'ring' has one schedule for all lengths; these have two: .*direct",
    "tree ring --nodes 0,0,1,1": "--nodes: 'ring' does not depend on it; these do: ",
    "tree ring --owners 0,1": "--owners: 'ring' does not depend on it; these do: ",
    "tree ring --nodes 0,0,1": "--nodes 0,0,1: 3 numbers for 4 ranks",
    "cost --owners 0,4": "--owners 0,4: choose ranks from 0 ... 3",
    "tree ring -n 0": "argument -n/--ranks: choose 1 to 256, not '0'",
    "cost -n 0": "argument -n/--ranks: choose 1 to 256, not '0'",
    "cost -n 1000000": "argument -n/--ranks: choose 1 to 256, not '1000000'",
    "cost --nodes 0,0,1,99999999999": "argument --nodes: choose 0 to 2147483647, not '99999999999'",
    "cost --length -1": "argument --length: choose 0 to 1099511627776, not '-1'",
    "cost --dtype float": "unknown dtype 'float': choose one of float64, float32, float16, bfloat16, int64",
    "cost 'ring in exact' --dtype int64": "'exact' takes float64, float32, float16, bfloat16, not int64",
    "cost --beta -1": "argument --beta: choose 0 to 1e.06, not '-1'",
    "cost --alpha nan": "argument --alpha: choose 0 to 1e.06, not 'nan'",
    "tree segmented-ring:segments=1000 -n 64": "'segmented-ring:segments=1000' cuts the vector into 64000 chunks: at "
    "most 4096 are possible on 64 ranks; choose fewer segments",
    "cost double-tree:segments=1024 -n 256": "into 2048 chunks: at most 1024 .*choose fewer segments",
    "tree segmented-ring:segments=1000000000": "segments: choose 1 to 1024, not '1000000000'",
    "tree k-nomial:k=1000000000": "k: choose 2 to 65536, not '1000000000'",
    f"tree permuted:seed={2**64}": "seed: choose 0 to 9223372036854775807, not '18446744073709551616'",
    "tree permuted:seed=-1": "seed: choose 0 to 9223372036854775807, not '-1'",
    f"tree permuted:seed={'9' * 5000}": "choose a name of at most 1000 characters",
    "dance": "invalid choice: 'dance' .choose from",
    "tree": "required: NAME",
    "tree ring -n four": "argument -n/--ranks: choose 1 to 256, not 'four'",
    "tree two --nodes 0,,1": "'0,,1' is no list of numbers: write them between commas",
    "cost --alpha fast": "argument --alpha: choose 0 to 1e.06, not 'fast'",
    "cost rnig": "unknown all-reduce ordering 'rnig'",
    "cost ring library": "'library' has no schedule to count",
}


@pytest.mark.parametrize("line, message", MISTAKES.items())
def test_mistakes_are_answered_with_what_is_allowed(capsys, line, message):
    assert main(shlex.split(line)) == 2
    output = capsys.readouterr()
    assert re.search(message, output.err) and output.err.count("\n") == 1 and not output.out


@pytest.mark.parametrize("name", ["tree", "cost", "list"])
def test_every_command_has_an_example(capsys, name):
    with pytest.raises(SystemExit) as stopped:
        main([name, "--help"])
    assert stopped.value.code == 0
    assert f"example: python -m kernels.allreduce {name}" in capsys.readouterr().out


def test_a_command_under_mpi_is_imported_when_it_is_called(capsys, monkeypatch, tmp_path):
    (tmp_path / "measure_nothing.py").write_text(
        "def register(commands):\n"
        "    parser = commands.add_parser('nothing')\n"
        "    parser.add_argument('what')\n"
        "    parser.set_defaults(run=lambda args: print('nothing of', args.what) or 3)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(command.UNDER_MPI, "nothing", ("measure_nothing", "what it is"))
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "what it is" in capsys.readouterr().out
    assert "measure_nothing" not in sys.modules
    assert main(["nothing", "else"]) == 3
    assert capsys.readouterr().out == "nothing of else\n"
    del sys.modules["measure_nothing"]


def test_it_runs_as_a_module_without_mpi():
    code = (
        "import runpy, sys; sys.argv = ['', 'tree', 'ring', '-n', '3']\n"
        "try: runpy.run_module('kernels.allreduce', run_name='__main__')\n"
        "except SystemExit as end: assert not end.code\n"
        "sys.exit('mpi4py' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    assert done.stdout == "((x[0] + x[1]) + x[2])\n"
