"""`python -m kernels.sums`: true output, as shown in docs/explanation/sums.md, and answers to wrong input."""

import os
import re
import shlex
import subprocess
import sys

import numpy as np
import pytest

from kernels import registry
from kernels.commands.sums import main
from kernels.sums import worst
from kernels.sums.compare import compare, table
from kernels.sums.orders import ORDERS
from kernels.sums.outline import outline
from kernels.sums.trees import NO_TREE, declared
from tests.launch import ROOT

from .hard import bits
from .test_tree import chain

PAGE = (ROOT / "docs" / "explanation" / "sums.md").read_text()
EXAMPLES = re.findall(r"^    \$ python -m kernels\.sums (tree .+)\n((?:    [^$].*\n)+)", PAGE, re.MULTILINE)


def printed(capsys, *arguments, code=0):
    assert main(list(arguments)) == code
    return capsys.readouterr().out


@pytest.mark.parametrize(
    "command, shown",
    [e for e in EXAMPLES if not {"numpy", "torch"} & set(e[0].split())],
    ids=lambda e: e[:40],
)
def test_the_page_shows_what_is_printed(capsys, command, shown):
    assert printed(capsys, *shlex.split(command)) == re.sub(r"^    ", "", shown, flags=re.MULTILINE)


def test_the_page_shows_trees_of_several_kinds():
    assert {command.split()[1] for command, _ in EXAMPLES} >= {"lanes", "spa", "exact", "numpy", "torch"}


# list


def test_the_list_names_every_variant_with_its_promise(capsys):
    text = printed(capsys, "list")
    assert text == printed(capsys)
    for part in text.split("\n\n")[:2]:
        for v in registry.variants(part.split()[0]):
            here = "no" if v.unavailable() else "yes"
            assert re.search(rf"^{v.name} +{v.backend} +{v.guarantee} +{here} ", part, re.MULTILINE)


def test_the_list_says_why_a_backend_cannot_run_here(capsys, monkeypatch):
    absent = registry.Variant("sum", "lanes", "moon", "run", "cold", max, lambda: "no rocket")
    monkeypatch.setitem(registry.VARIANTS, ("sum", "lanes", "moon"), absent)
    text = printed(capsys, "list")
    assert re.search(r"^lanes +moon +run +no +cold$", text, re.MULTILINE)
    assert "Not here: moon: no rocket" in text


# tree


@pytest.mark.parametrize("name", [name for name, order in ORDERS.items() if name not in NO_TREE])
def test_every_declared_tree_is_confirmed(capsys, name):
    backends = {v.backend for v in registry.variants("sum") if v.name == name} - {"cupy"}
    for backend in backends:
        text = printed(capsys, "tree", name, "-n", "100", "--backend", backend)
        assert text.endswith("This is the tree that the order declares.\n")


def test_parameters_reach_the_variant(capsys):
    text = printed(capsys, "tree", "omp-ordered", "-n", "6", "--threads", "2", "--dtype", "bfloat16")
    assert text.splitlines()[0].startswith("sum 'omp-ordered' (native) of 6 bfloat16, threads 2: depth 3,")
    assert "(((x[0] + x[2]) + x[1]) + ((x[3] + x[5]) + x[4]))" in text
    text = printed(capsys, "tree", "lanes", "-n", "20", "--expression", "--operation", "dot")
    assert text.startswith("dot 'lanes'") and "x[19]" in text


def test_a_tree_that_is_not_declared_is_told(capsys, monkeypatch):
    reverse = registry.Variant("sum", "lanes", "native", "run", "wrong", lambda x: np.cumsum(x[::-1])[-1])
    monkeypatch.setitem(registry.VARIANTS, ("sum", "lanes", "native"), reverse)
    text = printed(capsys, "tree", "lanes", "-n", "3", code=3)
    assert "(x[0] + (x[1] + x[2]))\nNOT THE TREE that the order declares.\n" in text


@pytest.mark.parametrize("promise, code", [("none", 0), ("run", 3)])
def test_an_order_of_chance_breaks_a_promise_only_where_there_is_one(capsys, monkeypatch, promise, code):
    rng = np.random.default_rng(0)
    chance = registry.Variant(
        "sum", "spa", "moon", promise, "dice", lambda x: np.cumsum(rng.permutation(x))[-1]
    )
    monkeypatch.setitem(registry.VARIANTS, ("sum", "spa", "moon"), chance)
    text = printed(capsys, "tree", "spa", "--backend", "moon", "-n", "50", code=code)
    assert "does not repeat" in " ".join(text.split())
    assert ("The variant promises no order: dice." in text) == (promise == "none")


def test_sums_without_a_tree_are_described(capsys):
    assert "order-free\nEvery permutation gives the same bits" in printed(capsys, "tree", "fixed-point")
    text = printed(capsys, "tree", "kahan", "-n", "100")
    assert "compensated" in text and "x[0] + x[1] + ... + x[99]: 100 terms, left to right" in text


# The outline


def test_an_outline_shows_what_is_alike_once():
    assert outline(chain(1000)) == ["x[0] + x[1] + ... + x[999]: 1000 terms, left to right"]
    assert outline(declared("sptr", 1024, block=64, items=2)) == [
        "binary tree over 1024 terms, x[0] and those 128, 256, 512, 1, 2, 4, 8, 16, 32 and 64 apart"
    ]
    assert outline(declared("sprg", 96, block=32, items=1)) == [
        "3 alike, left to right, 32 apart; the first of 32 terms:",
        "  binary tree over 32 terms, x[0] and those 1, 2, 4, 8 and 16 apart",
    ]
    assert outline(((0, 1), (2, (3, 4)))) == [
        "2 operands, added, 5 terms in all:",
        "  3 operands, left to right, 3 terms in all:",
        "    x[3] + x[4]",
        "    x[2]",
        "  (x[0] + x[1])",
    ]
    assert outline(((0, 1, 2, 3, 4), 5)) == [
        "2 operands, added, 6 terms in all:",
        "  (x[0], x[1], ..., x[4]: 5 terms, at once)",
        "  x[5]",
    ]
    assert outline(7) == ["x[7]"]


def test_one_after_another_and_apart_are_not_written_alike():
    first, second = chain(6), ((((6, 7), 8), 9), 10)
    apart, after = outline((first, second)), outline(chain(11))
    assert apart[1:] == [
        "  (x[0] + x[1] + ... + x[5]: 6 terms, left to right)",
        "  (x[6] + x[7] + ... + x[10]: 5 terms, left to right)",
    ]
    assert after == ["x[0] + x[1] + ... + x[10]: 11 terms, left to right"]


def test_an_outline_of_an_order_of_chance_is_cut_short():
    order = np.random.default_rng(0).permutation(100)
    lines = outline(declared("ao", 3200, order=order))
    assert len(lines) < 12 and re.search(r"\.\.\. \d+ operands more, not shown", lines[-2])


# worst and compare


def test_worst_orders_are_printed_and_saved_so_that_they_can_be_replayed(capsys, tmp_path):
    x = np.random.default_rng(4).standard_normal(3000)
    np.save(tmp_path / "x.npy", x)
    text = printed(capsys, "worst", str(tmp_path / "x.npy"), "--save", str(tmp_path / "found"))
    for which in ("lowest", "highest"):
        value = float(re.search(rf"^{which} found +(\S+)", text, re.MULTILINE)[1])
        order = np.load(tmp_path / f"found-{which}.npy")
        assert bits(worst.in_order(x, order, 32)) == bits(np.float64(value))


def test_worst_orders_of_partial_sums_follow_the_launch_shape(capsys):
    text = printed(
        capsys,
        "worst",
        "--distribution",
        "uniform",
        "-n",
        "1000",
        "--order",
        "spa",
        "--block",
        "32",
        "--items",
        "1",
    )
    assert text.startswith("order of arrival 'spa': 32 partial sums of type float64 (uniform, seed 0)\n")


def test_every_variant_that_can_run_is_compared(capsys):
    text = printed(capsys, "compare", "--distribution", "lognormal", "-n", "300", "--threads", "2")
    for v in registry.variants("sum"):
        match = re.search(
            rf"^{v.name} +{v.backend} +{v.guarantee} +(\S+) +(\S+) +(-?\d+) +(\S+) ", text, re.MULTILINE
        )
        assert bool(match) == (not v.unavailable())
        if match:
            value, hexadecimal, off, at_most = match.groups()
            assert float(value) == float.fromhex(hexadecimal)
            assert at_most == "-" or abs(int(off)) <= float(at_most) + 1
            assert v.name != "exact" or off == "0"
            assert re.search(rf"^{v.name} +{v.backend} .* \d+\.\d+ to \d+\.\d+$", text, re.MULTILINE)


def test_more_threads_than_cores_are_warned_of(capsys, monkeypatch):
    monkeypatch.setattr("kernels.commands.sums.cores", lambda: 2)
    command = ["compare", "--distribution", "normal", "-n", "10", "--threads"]
    assert main([*command, "2"]) == 0
    assert capsys.readouterr().err == ""
    assert main([*command, "3"]) == 0
    err = capsys.readouterr().err
    assert err.startswith("python -m kernels.sums: --threads 3: this process may use 2 cores, ")
    assert err.count("\n") == 1


@pytest.mark.parametrize("value, off", [(1.0, 0), (np.nextafter(1, 2), 1), (1 - 2.0**-53, -1), (-0.0, None)])
def test_distances_are_counted_in_ulp(monkeypatch, value, off):
    monkeypatch.setattr(registry, "VARIANTS", {})
    registry.variant("sum", "exact", backend="a", guarantee="run", why="x")(
        lambda x: 1.0 if off is not None else 0.0
    )
    registry.variant("sum", "lanes", backend="b", guarantee="run", why="x")(lambda x: value)
    row = table(compare(np.ones(1)), np.ones(1), "test").splitlines()[3]
    assert row.split()[5] == str(off or 0)


def test_a_variant_that_refuses_the_array_says_so(capsys, monkeypatch):
    def refuse(x):
        raise TypeError("not these")

    monkeypatch.setitem(
        registry.VARIANTS, ("sum", "no", "here"), registry.Variant("sum", "no", "here", "run", "", refuse)
    )
    assert re.search(
        r"^no +here +run +refused: not these$",
        printed(capsys, "compare", "--distribution", "normal", "-n", "5"),
        re.MULTILINE,
    )


def test_arrays_that_are_not_finite_or_empty_are_compared(capsys, tmp_path):
    for name, x in {"nan": [1.0, np.nan], "inf": [np.inf, 1.0], "nothing": []}.items():
        np.save(tmp_path / name, np.array(x, np.float32))
        text = printed(capsys, "compare", str(tmp_path / f"{name}.npy"))
        assert re.search(r"^exact .* (same|0) +- ", text, re.MULTILINE)


# Mistakes

MISTAKES = {
    "tree nope": "unknown sum 'nope': choose one of .*lanes",
    "tree lanes --backend cupy": "unknown backend of sum 'lanes' 'cupy': choose one of native",
    "tree lanes --block 64": "--block is not for 'lanes' \\(native\\), which takes: none",
    "tree sptr --threads 2 --seed 1": "--seed is not for 'sptr' .*takes: --block, --items, --grid, --threads",
    "tree sptr --block 48": "block 48: choose a power of two from 32 to 1024",
    "tree lanes -n 0": "argument -n: choose 1 to 65536, not '0'",
    "tree lanes -n 10000000000000": "argument -n: choose 1 to 65536, not '10000000000000'",
    "tree omp-ordered --threads -1": "argument --threads: choose 1 to 1024, not '-1'",
    "tree omp-ordered --threads 1000000": "argument --threads: choose 1 to 1024, not '1000000'",
    "compare --distribution normal --threads 1000000": "argument --threads: choose 1 to 1024",
    "compare --distribution normal -n 1000000000000": "argument -n: choose 1 to 100000000",
    "worst --distribution normal --seed -1": "argument --seed: choose 0 to 9223372036854775807, not '-1'",
    f"worst --distribution normal --seed {2**64}": "argument --seed: choose 0 to 9223372036854775807",
    f"worst --distribution normal --seed {'9' * 5000}": r"choose 0 to 9223372036854775807, not '9+\.\.\. \(5002 char",
    "worst --distribution normal --order spa --grid 99999999999": "argument --grid: choose 1 to 2147483647",
    "tree spa --resident 99999999999": "argument --resident: choose 0 to 2147483647",
    "tree lanes --dtype int8": "argument --dtype: invalid choice: 'int8' .choose from",
    "worst --order ring": "argument --order: invalid choice: 'ring' .choose from",
    "dance": "argument COMMAND: invalid choice: 'dance' .choose from",
    "worst": "name a FILE.npy or a --distribution, not neither",
    "worst x.npy --distribution normal": "name a FILE.npy or a --distribution, not both",
    "worst nothing.npy": "nothing.npy is not a one-dimensional array of numbers from numpy.save: .*No such file",
    "worst --distribution normal --block 64": "--block is not for 'ao'.*choose --order spa",
    "worst --distribution normal -n 10 --save no/where/at-all": "--save no/where/at-all: .*No such file",
    f"compare {ROOT}/README.md": "README.md is not a one-dimensional array.*: it does not begin",
    "compare /dev/zero": "/dev/zero is not a one-dimensional array.*: it is not a regular file",
}


@pytest.mark.parametrize("command, message", MISTAKES.items())
def test_mistakes_are_answered_with_what_is_allowed(capsys, command, message):
    assert main(shlex.split(command)) == 2
    streams = capsys.readouterr()
    assert re.search(message, streams.err) and streams.err.count("\n") == 1 and not streams.out


def test_a_file_is_not_believed_beyond_what_it_holds(capsys, tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, np.ones(3))
    damaged = path.read_bytes()
    for message, content in (
        (
            "announces 8000000000000 bytes of elements, and 2. follow",
            damaged.replace(b"(3,), }          ", b"(1000000000000,), }", 1),
        ),
        ("elements of type float64 in the shape .-3,.", damaged.replace(b"(3,), } ", b"(-3,), }")),
        ("its header claims 65535 bytes", damaged[:8] + b"\xff\xff" + damaged[10:]),
        ("its header cannot be read", damaged.replace(b"'descr'", b"[[[[[[(")),
        ("it ends within its header", damaged[:40]),
    ):
        path.write_bytes(content)
        assert main(["compare", str(path)]) == 2
        assert re.search(message, capsys.readouterr().err), message
    path.write_bytes(damaged.replace(b"(3,), } ", b"(3L,), }"))  # as Python 2 wrote it
    assert main(["compare", str(path)]) == 0
    assert not capsys.readouterr().err
    os.remove(path)
    os.mkfifo(path)
    assert main(["compare", str(path)]) == 2
    assert "it is not a regular file" in capsys.readouterr().err


@pytest.mark.parametrize("x", [np.ones((2, 2)), np.array(["a"]), np.ones(3, int), np.array([1.0, np.nan])])
def test_files_that_cannot_be_summed_or_ordered_are_refused(capsys, tmp_path, x):
    np.save(tmp_path / "x.npy", x)
    assert main(["worst", str(tmp_path / "x.npy")]) == 2
    assert re.search("is not a one-dimensional array|1 not finite", capsys.readouterr().err)


def test_it_runs_as_a_module():
    done = subprocess.run(
        [sys.executable, "-m", "kernels.sums", "tree", "reference", "-n", "3"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0
    assert done.stdout.splitlines()[1] == "((x[0] + x[1]) + x[2])"


def test_narrow_types_are_converted(capsys):
    for name in ("float16", "bfloat16"):
        text = printed(capsys, "worst", "--distribution", "normal", "-n", "50", "--dtype", name)
        assert "50 elements of type float32" in text


@pytest.mark.parametrize("words", ["kernels.sums list", "kernels.allreduce list --verbose"])
def test_a_reader_that_leaves_is_no_error(words):
    process = subprocess.Popen(
        [sys.executable, "-m", *words.split()], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait() == 0
