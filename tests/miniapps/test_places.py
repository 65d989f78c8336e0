"""Places in programs: a function is named only where it holds the address, and its caller is the one that called."""

import os
import re
import shutil
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest

from miniapps.programs.elf import functions_at
from miniapps.programs.places import GENERATED, Place, Places, tidied

ROOT = Path(__file__).parents[2]
PRELOAD = ROOT / "miniapps/programs/preload"

pytestmark = pytest.mark.skipif(not shutil.which("g++") or not shutil.which("nm"), reason="no g++, no nm")

SOURCE = """\
__attribute__((noinline)) static double allreduce(double x) { volatile double y = x; return y; }
static inline double dot(double x) {
    return allreduce(x) + 1;
}
__attribute__((noinline)) double solve(double x) {
    return dot(x) * 2;
}
asm(".globl marked\\nmarked: ret\\nret\\n");
int main(int c, char **v) { return (int)solve(c); }
"""


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """One program with debug information, one with symbols alone, one with none."""
    folder = tmp_path_factory.mktemp("programs")
    (folder / "app.cpp").write_text(SOURCE)
    for name, options in (("lines", ["-g"]), ("symbols", []), ("stripped", ["-s"])):
        command = ["g++", "-O2", *options, "-o", folder / name, folder / "app.cpp"]
        subprocess.run(command, check=True, capture_output=True)
    return folder


def symbols(file):
    """Address and size of each function by name."""
    printed = subprocess.run(["nm", "-S", file], capture_output=True, text=True).stdout
    words = [line.split() for line in printed.splitlines()]
    return {own[3]: (int(own[0], 16), int(own[1], 16)) for own in words if len(own) == 4 and own[2] in "tT"}


def behind_calls(file, function):
    """Addresses behind the calls of `function` in a program with symbols, from its disassembly."""
    printed = subprocess.run(["objdump", "-d", file], capture_output=True, text=True).stdout
    lines = [line for line in printed.splitlines() if re.match(r"\s+[0-9a-f]+:\t", line)]
    return [
        int(after.split(":")[0], 16)
        for line, after in pairwise(lines)
        if re.search(rf"call.*<{function}>", line)
    ]


def words(file, *addresses, lines=(), changed=False):
    state = os.stat(file) if os.path.exists(file) else None
    files = {str(file): (state.st_size + changed, state.st_mtime_ns)} if state else {}
    functions = tuple((str(file), address) for address in addresses)
    return Places({1: Place(functions, tuple(lines))}, files).words()[1]


def test_a_symbol_names_the_addresses_inside_it_and_no_other(programs):
    own = symbols(programs / "symbols")
    begin, size = own["_Z5solved"]
    assert functions_at(str(programs / "symbols"), [begin, begin + size - 1]) == [("_Z5solved", begin)] * 2
    ends = [at for at in (begin + size, begin - 1) if not any(b <= at < b + s for b, s in own.values())]
    marked = next(
        int(line.split()[0], 16)
        for line in subprocess.run(
            ["nm", programs / "symbols"], capture_output=True, text=True
        ).stdout.splitlines()
        if line.endswith(" marked")
    )  # a symbol without a size
    assert functions_at(str(programs / "symbols"), [*ends, marked, marked + 1, 0, 2**63]) == [("", 0)] * (
        len(ends) + 4
    )


def test_places_in_words_by_what_a_file_tells(programs):
    (inner,), (outer,) = (
        behind_calls(programs / "symbols", function) for function in ("_ZL9allreduced", "_Z5solved")
    )
    begin = {name: at for name, (at, _) in symbols(programs / "symbols").items()}
    assert words(programs / "symbols", inner, outer) == (
        f"solve+{inner - begin['_Z5solved']:#x} from main+{outer - begin['main']:#x}"
    )
    stripped = [f"stripped+{at:#x}" for at in (inner, outer, 66, 77)]
    assert words(programs / "stripped", inner, outer, 66, 77) == " from ".join(stripped[:3])
    # Inlined functions are named as they stand in the source, whatever the compiler made of them.
    assert words(programs / "lines", inner, outer) == "app.cpp:3 from solve (app.cpp:6)"
    # addr2line has no name for `dot` in C++, and gives `solve`: then the line alone is said. In C it has.
    assert words(programs / "lines", inner, outer, changed=True) == f"lines+{inner:#x} from lines+{outer:#x}"
    assert words("/nowhere/lib.so", 66) == "lib.so+0x42"
    assert words("", 66) == GENERATED


def test_interfaces_are_left_out_and_wrappers_are_followed_by_their_callers(programs):
    (inner,) = behind_calls(programs / "lines", "_ZL9allreduced")
    begin, _ = symbols(programs / "lines")["_ZL9allreduced"]
    wrapped = Places(
        {
            1: Place(
                (("/lib/libmpifort.so.12", 5), *((str(programs / "lines"), at) for at in (begin + 1, inner)))
            )
        },
        {
            str(programs / "lines"): (
                os.stat(programs / "lines").st_size,
                os.stat(programs / "lines").st_mtime_ns,
            )
        },
    )
    assert wrapped.words() == {1: "allreduce (app.cpp:1) from app.cpp:3 from solve (app.cpp:6)"}
    assert words("/lib/libmpi.so.12", 66) == "libmpi.so.12+0x42"  # nothing else is known


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([("/a/cg.py", "dot", 5), ("/a/app.py", "solve", 9), ("/a/app.py", "<module>", 30)],
         "dot (cg.py:5) from solve (app.py:9)"),
        ([("/a/cg.py", "dot", 5), ("/a/app.py", "<module>", 30)], "dot (cg.py:5) from app.py:30"),
        ([("/a/app.py", "<module>", 30), ("<frozen importlib._bootstrap>", "_call", 241)], "app.py:30"),
        ([("/s/mpi4py/util/pkl5.py", "bcast", 7), ("/a/pkg/__init__.py", "f", 3)], "f (pkg/__init__.py:3)"),
        ([("/a/c.py", "Allreduce_sum", 2), ("/a/c.py", "dot", 5), ("/a/c.py", "cg", 9), ("/a/c.py", "go", 11)],
         "Allreduce_sum (c.py:2) from dot (c.py:5) from cg (c.py:9)"),
        ([(str(ROOT / "miniapps/programs/communicator.py"), "Allreduce", 2), ("/a/c.py", "dot", 5)], "dot (c.py:5)"),
        ([("/s/mpi4py/futures/_core.py", "bcast", 7), ("/p/threading.py", "run", 982)], "bcast (_core.py:7)"),
        ([("/a/c.py", "work", 2), ("/p/threading.py", "run", 982)], "work (c.py:2)"),
        ([("/home/me/kernels/c.py", "dot", 5)], "dot (c.py:5)"),
    ],
)  # fmt: skip
def test_lines_of_python(lines, expected):
    assert words("/s/mpi4py/MPI.cpython-311.so", 66, lines=lines) == expected


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("void foo<double>(double*, int)", "foo<double>"), ("Foam::reduce(double&, Foam::sumOp<double> const&)",
         "Foam::reduce"), ("A::operator()(int) const", "A::operator()"), ("f(void (*)(int))", "f"),
        ("dot.cold.1", "dot"), ("step.0", "step"),
        ("main::{lambda(int)#1}::operator()(int) const", "main::{lambda(int)#1}::operator()"),
        ("__mp_MOD_mp_sum", "mp.mp_sum"), ("zgsum2d_", "zgsum2d_"), ("f(int) [clone .isra.0]", "f"),
        ("std::vector<int, std::allocator<int> > g<int>(int)", "g<int>"),
    ],
)  # fmt: skip
def test_names_of_functions_without_what_compilers_add(symbol, name):
    assert tidied(symbol) == name


@pytest.mark.parametrize(
    "options",
    [
        ["-O2"],
        *(pytest.param(o, marks=pytest.mark.slow) for o in (["-O0"], ["-O1"], ["-O3", "-mavx2"], ["-Os"])),
    ],
)
def test_callers_are_those_that_the_compilers_library_finds(options, tmp_path):
    """22,000 stacks: varying, aligned and large frames, frame pointers, exceptions, callbacks of libc."""
    source = ROOT / "tests/mpi/preload/callers.cpp"
    command = [
        "g++",
        "-std=c++17",
        *options,
        "-pthread",
        "-I",
        PRELOAD,
        source,
        "-o",
        tmp_path / "callers",
        "-ldl",
    ]
    subprocess.run(command, check=True, capture_output=True)
    printed = subprocess.run([tmp_path / "callers", "0"], check=True, capture_output=True, text=True).stdout
    compared, differing, shorter, _ = printed.split()
    assert int(compared) > 200_000
    assert (differing, shorter) == ("0", "0")
