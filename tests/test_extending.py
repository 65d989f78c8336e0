"""docs/how-to/extending, followed: on a copy of the tree, in no other places than it names."""

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.analysis.synthetic import write_run, write_timed
from tests.launch import run_mpi, run_python
from tests.ranks import on_ranks

FEW = ("--set", "problem.sizes=100", "--set", "method.samples=2", "--set", "method.variants=sptr")
CAMPAIGN = """\
name = "decays"
out = "out"

[[runs]]
app = "decay"
ranks = [1, 2]
deck = "L"
"""
ROOT = Path(__file__).resolve().parents[1]


def blocks(page, heading=None):
    """The pieces of files on a page of docs/how-to, or in one of its sections, in their order."""
    text = (ROOT / "docs/how-to" / f"{page}.md").read_text()
    if heading:
        text = re.split(rf"^## {heading}$", text, flags=re.MULTILINE)[1].split("\n## ")[0]
    return re.findall(r"```(?:python|cuda|cpp|toml)\n(.*?)```", text, flags=re.DOTALL)


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A copy of the packages, with all that the sections add, where they say so and in no other place."""
    copy = tmp_path_factory.mktemp("tree")
    for name in ("fpna", "kernels", "miniapps", "analysis", "jobs", "tools"):
        shutil.copytree(ROOT / name, copy / name)
    for add in (ordering, summation, wire, application, models, site, study):
        add(copy)
    return copy


def fpna(tree, *words, ranks=1):
    """What a command of the copy printed, on ranks that have imported it."""
    done = on_ranks(ranks, ["-m", *words], cwd=tree, env={"PYTHONPATH": str(tree)})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def python(tree, program):
    """What a program printed that uses the copy, and CUDA on the host."""
    done = run_python(
        ["-c", program], cwd=tree, env={"PYTHONPATH": f"{tree}{os.pathsep}{ROOT / 'tests/cuda_on_host'}"}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def put(file, text, before=""):
    """Write `text` into the file, or before some line that is in it."""
    if not before:
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
        return
    content = file.read_text()
    assert content.count(before) == 1
    file.write_text(content.replace(before, text + before))


def append(file, text):
    """Write `text` behind what the file has."""
    file.write_text(f"{file.read_text()}\n\n{text}")


def ordering(tree):
    put(tree / "kernels/allreduce/schedules/evens.py", *blocks("extending/ordering"))


def test_an_ordering(tree, tmp_path):
    shown = fpna(tree, "fpna", "kernels", "allreduce", "tree", "evens-first", "-n", "5")
    assert shown.strip().endswith("((((x[0] + x[2]) + x[4]) + x[1]) + x[3])")
    assert "evens-first" in fpna(tree, "fpna", "coupled", "--list")
    run = ("miniapps.reductions", *FEW, "--allreduce", "evens-first", "--out", tmp_path / "run")
    assert "VERIFICATION: PASS" in fpna(tree, *run, ranks=3)


TWINS = """
import cupy, numpy as np
from kernels import registry, sums

for n in (1, 2, 1000):
    x = np.random.default_rng(n).standard_normal(n)
    mine, twin = (registry.get("sum", "outside-in", backend) for backend in ("cupy", "numpy"))
    print(mine(cupy.asarray(x)).tobytes() == twin(x).tobytes())
"""


TWINS = """
import cupy, numpy as np
from kernels import registry, sums

for n in (1, 2, 1000):
    x = np.random.default_rng(n).standard_normal(n)
    mine, twin = (registry.get("sum", "outside-in", backend) for backend in ("cupy", "numpy"))
    print(mine(cupy.asarray(x)).tobytes() == twin(x).tobytes())
"""


def summation(tree):
    order, stated, function, on_gpu, registered = blocks("extending/sum")
    sums = tree / "kernels" / "sums"
    put(sums / "orders.py", f"        {order}", '        Order("reference"')
    put(sums / "trees.py", textwrap.indent(stated, "    "), '    if name == "reference":')
    append(sums / "numpy.py", function)
    append(tree / "kernels/cuda/sums.cu", on_gpu)
    append(sums / "cupy.py", registered)


def test_a_sum(tree):
    shown = fpna(tree, "fpna", "kernels", "sums", "tree", "outside-in", "-n", "5")
    assert "((((x[0] + x[4]) + x[1]) + x[3]) + x[2])\nThis is the tree that the order declares." in shown
    assert python(tree, TWINS).split() == ["True"] * 3


WIRES = """
import cupy, ml_dtypes, numpy as np
from kernels.wires import cells_of, codec, cuda

x = np.float32(np.random.default_rng(1).standard_normal(5000)) * np.float32(2.0) ** np.arange(-12, 13, 0.005)[:5000]
x = x.astype(np.float32)
there, data = codec("e3m4"), np.empty(5000, np.uint8)
cells = cells_of(5000)
there.encode(x, cells, data)
print(bool((data == x.astype(ml_dtypes.float8_e3m4).view(np.uint8)).all()))
print(bool((there.over(x, cells) == x.astype(ml_dtypes.float8_e3m4).astype(np.float32)).all()))
out = cupy.empty(5000, cupy.uint8)
cuda.Planned(there, cells).encode(cupy.asarray(x), out)
print(bool((out.get() == data).all()))
"""


def objects():
    """The compiled sources of the extension, by name, as far as it was built here."""
    folder = next((ROOT / "build").glob(f"temp.*-{sys.implementation.cache_tag}/kernels/native"), Path())
    built = {path.stem: folder / f"{path.stem}.o" for path in (ROOT / "kernels/native").glob("*.cpp")}
    return {name: path for name, path in built.items() if path.exists()}


def compile_again(tree, source):
    """Compile one source of the extension as it is in the copy, and link it with the others as they were built."""
    compiler, place = os.environ.get("CXX", "c++"), tree / "kernels" / "native"
    flags = ["-O1", "-fPIC", "-fopenmp", "-ffp-contract=off", "-std=c++17"]
    subprocess.run([compiler, *flags, "-c", place / f"{source}.cpp", "-o", place / "new.o"], check=True)
    (extension,) = (tree / "kernels").glob("_native*.so")
    extension.unlink()
    linked = (objects() | {source: place / "new.o"}).values()
    subprocess.run([compiler, "-shared", "-fopenmp", *linked, "-o", extension], check=True)


def wire(tree):
    defined, listed, struct, cast, row = blocks("extending/wire")
    if "wires" not in objects():
        return
    put(tree / "kernels/wires/reference.py", f"    {defined}", '    "e4m3": Format')
    put(tree / "kernels/wires/codecs.py", f"    {listed}", '    "e4m3": "Cast')
    put(tree / "kernels/include/codes.hpp", struct, "// A whole number of BITS bits")
    put(tree / "kernels/native/wires.cpp", cast, "FPNA_CAST(e4m3,")
    put(tree / "kernels/native/wires.cpp", f"    {row}", "    FPNA_HALVES_ROW(e4m3,")
    compile_again(tree, "wires")


@pytest.mark.skipif("wires" not in objects(), reason="the extension was not built here (make environment)")
def test_a_wire(tree, tmp_path):
    assert python(tree, WIRES).split() == ["True"] * 3
    few = ("--data", "blobs", "--steps", "2", "--wire", "e3m4:scale=tensor", "--out", tmp_path / "run")
    assert "VERIFICATION: PASS" in fpna(tree, "miniapps.training", *few, ranks=2)


def application(tree):
    (front,) = blocks("extending/application")
    new = tree / "miniapps" / "decay"
    put(new / "__init__.py", front)
    main = (tree / "miniapps/reductions/__main__.py").read_text()
    put(new / "__main__.py", main.replace("reductions", "decay"))


def test_an_application(tree, tmp_path):
    """On ranks that begin and end with it, too."""
    assert "decay        Blocks that decay by their global mean." in fpna(tree, "fpna", "--help")
    one = fpna(tree, "fpna", "decay", "--guarantee", "layout", "--out", tmp_path / "one")
    several = run_mpi(3, ["-m", "miniapps.decay", "--guarantee", "layout", "--out", tmp_path / "three"], cwd=tree,
                      env={"PYTHONPATH": str(tree)})  # fmt: skip
    assert several.returncode == 0, several.stderr
    assert fingerprint(one) == fingerprint(several.stdout)
    put(tree / "miniapps" / "decay" / "decks" / "L.toml", "# Longer.\n[work]\nsteps = 9\n")
    assert "Longer." in fpna(tree, "fpna", "decay", "--list")
    put(tmp_path / "c.toml", CAMPAIGN)
    assert "decay" in fpna(tree, "fpna", "jobs", "plan", tmp_path / "c.toml")
    runs = (tmp_path / "one", tmp_path / "three")
    assert "IDENTICAL" in fpna(tree, "fpna", "report", *runs, "-o", tmp_path / "report.html")


def fingerprint(printed):
    """The line of what an application prints that has it."""
    (line,) = [line for line in printed.splitlines() if line.startswith("FINGERPRINT")]
    return line


TASK = ("--data", "blobs", "--batch", "32", "--set", "training.micro=8", "--set", "model.hidden=16", "--steps", "2",
        "--guarantee", "layout", "--quiet")  # fmt: skip


def models(tree):
    put(tree / "miniapps/training/models/deep.py", *blocks("extending/training-model"))
    put(tree / "miniapps/partition/models/autoencoder.py", *blocks("extending/mesh-model"))


def trained(tree, tmp_path, application, one, two):
    """A model learns on 2 ranks from the command line, and by `fpna` on one: with one hash."""
    alone = fpna(tree, "fpna", application, *TASK, *one, "--out", tmp_path / "one")
    several = fpna(tree, f"miniapps.{application}", *TASK, *two, "--out", tmp_path / "two", ranks=2)
    assert fingerprint(alone) == fingerprint(several)


def test_a_training_model(tree, tmp_path):
    deep = ("--model", "deep", "--set", "model.depth=2")
    assert "deep: As many hidden layers" in fpna(tree, "fpna", "training", "--help")
    trained(tree, tmp_path, "training", (*deep, "--checkpoint-every", "1"), deep)
    checkpoint = tmp_path / "one/checkpoints/repeat-0-step-000001.h5"
    again = fpna(tree, "fpna", "training", *TASK, *deep, "--restart", checkpoint, "--out", tmp_path / "again")
    (first,) = json.loads((tmp_path / "one" / "result.json").read_text())["fingerprints"]
    assert fingerprint(again).endswith(f"={first}")
    asked = ("--data", "blobs", "--set", "model.hidden=16", "--requests", "3", "--weights", tmp_path / "one")
    assert "VERIFICATION: PASS" in fpna(
        tree, "fpna", "inference", *deep, *asked, "--out", tmp_path / "answers"
    )


def test_a_mesh_model(tree, tmp_path):
    cut = ("--model", "autoencoder", "--axes", "batch,hidden", "--recipe")
    trained(tree, tmp_path, "mesh", (*cut, "dp", "--mesh", "data=1"), (*cut, "tp", "--mesh", "model=2"))
    explained = fpna(tree, "fpna", "partition", "explain", "autoencoder", "--recipe", "tp")
    assert explained.startswith("autoencoder, tp: ")


SITE = "sites", "A site of one's own"


def site(tree):
    put(tree / "jobs/sites/theirs.toml", *blocks(*SITE))


def test_a_site(tree, tmp_path):
    put(tmp_path / "ours.toml", *blocks(*SITE))
    fits = "[sites.theirs]\nranks_per_node = 2\n[sites.ours]\nranks_per_node = 2\n"
    put(tmp_path / "c.toml", CAMPAIGN.replace('"decay"', '"reductions"').replace('deck = "L"\n', fits))
    scripts = [
        fpna(tree, "fpna", "jobs", "render", tmp_path / "c.toml", "--site", named)
        for named in ("theirs", tmp_path / "ours.toml")
    ]
    assert all(
        "srun --mpi=pmi2 -N " in script and "# Our MPICH speaks PMI-2." in script for script in scripts
    )


def study(tree):
    front, module = blocks("extending/study")
    new = tree / "analysis" / "studies" / "lengths"
    new.mkdir()
    (new / "__init__.py").write_text(front)
    (new / "study.py").write_text(module)


def test_a_study(tree, tmp_path):
    fpna(tree, "tools.reference", tmp_path / "pages")
    page = (tmp_path / "pages/reference/json.md").read_text()
    assert "| `wall_s` | number, s | first event to last, longest rank |" in page
    run = write_run(tmp_path / "run")
    assert "lengths      how long launches ran" in fpna(tree, "fpna", "--help")
    shown = fpna(tree, "fpna", "lengths", run, "--csv", tmp_path / "csv")
    assert "The longest of 1 is run, of " in shown
    assert (tmp_path / "csv" / "lengths.csv").read_text().startswith("run,repeat,wall_s\nrun,0,")
    fpna(tree, "fpna", "report", run, "-o", tmp_path / "report.html")
    html = (tmp_path / "report.html").read_text()
    assert '<section id="lengths">' in html and "Seconds of each launch" in html
    short = write_timed(tmp_path / "short", lambda rank, step: [("step", 0.2, [])])
    assert "too-short" in fpna(tree, "fpna", "lint", short)
    assert "analysis lengths" in fpna(tree, "fpna", "ask", "duration of a launch", run)
