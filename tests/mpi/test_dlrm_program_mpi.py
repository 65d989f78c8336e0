"""The program of a step of DLRM says exactly what a traced run looks up, sends and adds, whatever the sharding."""

import json
from math import prod

import numpy as np
import pytest

pytest.importorskip("torch")
from miniapps.embeddings.sharding import SHARDINGS
from miniapps.trace import read
from miniapps.trace.head import label_of
from miniapps.trace.schema import rank_file
from miniapps.untrusted.program import read_program
from tests.ranks import on_ranks

STEP = 2  # that the program describes
SMALL = ["--rows", "200", "--tables", "3", "--pooling", "3", "--batch", "40", "--set", "training.micro=8", "--set",
         "embeddings.columns=6", "--set", "embeddings.blocks=5", "--set", "model.hidden=8", "--set",
         "embeddings.fingerprints=0", "--steps", "3", "--evaluate-every", "0", "--no-progress"]  # fmt: skip
MIXED = "row,table:rank=0,column"
CASES = [
    *((2, sharding, "none", ()) for sharding in SHARDINGS),
    *(pytest.param(1, sharding, "none", (), marks=pytest.mark.slow) for sharding in SHARDINGS),
    (1, "row,table,column", "layout", ()),
    (3, "row-pooled,replicated,row", "none", ()),
    (3, MIXED, "layout", ("--shuffle-blocks", "3")),
    (4, MIXED, "layout", ("--set", "training.bucket=300")),
    pytest.param(4, "table", "none", ("--optimiser", "adam"), marks=pytest.mark.slow),
    (2, "row-pooled,row,table", "exact", ("--aggregate", "exact")),
]


def launched(n, *options, library="mpich"):
    run = on_ranks(n, ["-m", "miniapps.dlrm", *SMALL, *options], library, timeout=240)
    assert run.returncode == 0, run.stdout + run.stderr


def events_of(trace):
    """{name: the bytes of its events in the step}."""
    events = trace.tables["events"]
    here = events["step"] == STEP
    found = {}
    for name, nbytes in zip(events["name"][here].tolist(), events["bytes"][here].tolist(), strict=True):
        found.setdefault(trace.names[name], []).append(nbytes)
    return found


def compared(program, out, n):
    """Compares the program with the traces of all ranks; returns the number of compared waits."""
    compared = 0
    for rank in range(n):
        (own,) = [of for of in program.classes if rank in of.ranks]
        trace = read(out / rank_file(rank))
        events, reductions = events_of(trace), trace.attributes["reductions"]
        waits = {wait.name: wait for wait in own.waits if not wait.name.startswith(("lengths", "ranges"))}
        looked = [program.works[k] for of in own.segments for k, times in of.calls for _ in range(times)]
        rows = [prod(w.dims[:2]) * 4 for w in looked if " lookup " in w.key and "elsewhere" not in w.key]
        assert sum(rows) == events["lookup"][0] == events["lookup"][1]
        for name, nbytes in events.items():
            if name.startswith("exchange."):
                assert nbytes == [waits[name].nbytes if n > 1 else 0], (rank, name)
            elif name.startswith("allreduce.") and n > 1:
                wait, described = waits[name], reductions[name.removeprefix("allreduce.")]
                assert len(nbytes) == 1
                assert wait.label == label_of(described)
                assert (wait.elements, wait.itemsize) == (
                    prod(described["shape"]),
                    np.dtype(described["dtype"]).itemsize,
                )
                assert wait.contributions == described["contributions"]
            else:
                continue
            compared += 1
        assert {name for name in events if name.startswith(("exchange.", "allreduce."))} >= set(waits)
        held = sum(wait.nbytes for wait in own.waits if wait.name.startswith("lengths"))
        assert held == 8 * (n - 1)
    return compared


@pytest.mark.parametrize(("n", "sharding", "level", "more"), CASES)
def test_messages_and_lookups_are_those_of_a_traced_run(tmp_path, n, sharding, level, more):
    asked = ["--sharding", sharding, "--guarantee", level, *more]
    launched(n, *asked, "--save-plan", str(tmp_path / "plan.json"), "--out", str(tmp_path / "saved"))
    launched(n, *asked, "--out", str(tmp_path / "run"))
    program = read_program(tmp_path / "plan.json")
    assert (program.size, program.guarantee, program.app) == (n, level, "dlrm")
    assert compared(program, tmp_path / "run", n) >= (5 if n > 1 else 3) * n


def test_the_other_library_sends_the_same(tmp_path):
    launched(
        3, "--save-plan", str(tmp_path / "plan.json"), "--out", str(tmp_path / "saved"), library="openmpi"
    )
    launched(3, "--out", str(tmp_path / "run"), library="openmpi")
    assert compared(read_program(tmp_path / "plan.json"), tmp_path / "run", 3) >= 15


@pytest.mark.slow
def test_two_ranks_choose_a_sharding_for_lookups_like_those_of_a_run(tmp_path):
    """The same choice on both ranks, whose hash is that of another sharding on one rank."""
    sizes = "tables=3 rows=100..300 pooling=2..3 width=6 batch=40 micro=8 hidden=8 ranks=2 guarantee=layout"
    what = [
        "--what",
        "programs",
        "--what",
        "collectives",
        "--reduction",
        "library",
        "--reduction",
        "block-tree",
    ]
    argv = ["-m", "miniapps.calibrate", "--budget", "0", *what, "--plan", f"dlrm row|table|mixed {sizes}", "--programs",
            "4", "--no-progress", "--out", str(tmp_path / "cal")]  # fmt: skip
    run = on_ranks(2, argv, timeout=240)
    assert run.returncode == 0, run.stdout + run.stderr
    launched(1, "--out", str(tmp_path / "asked"))
    tables = {"--rows", "--tables", "--pooling"}
    like = [word for k, word in enumerate(SMALL) if not tables & {word, SMALL[k - 1]}]
    like += ["--data", "recorded", "--lookups", str(tmp_path / "asked"), "--guarantee", "layout"]
    found = []
    for n, how in (
        (2, ["--sharding", "auto", "--calibration", str(tmp_path / "cal")]),
        (1, ["--sharding", "row"]),
    ):
        out = tmp_path / f"run{n}"
        run = on_ranks(n, ["-m", "miniapps.dlrm", *like, *how, "--out", str(out)], timeout=240)
        assert run.returncode == 0, run.stdout + run.stderr
        found.append([line for line in run.stdout.splitlines() if line.startswith("FINGERPRINT state=")])
    config = read(tmp_path / "run2" / rank_file(1)).attributes["config"]
    assert config["embeddings"]["sharding"] != "auto"
    assert found[0] and found[0] == found[1]


def test_two_ranks_calibrate_their_own_steps_and_a_plan_of_two_is_priced(tmp_path, capsys):
    from analysis.__main__ import main

    sizes = "dlrm row tables=3 rows=200..300 pooling=2 width=6 batch=64 hidden=8 ranks=2 guarantee=none"
    what = ["--what", "programs", "--what", "collectives", "--reduction", "library"]
    argv = [
        "-m",
        "miniapps.calibrate",
        "--budget",
        "0",
        *what,
        "--plan",
        sizes,
        "--programs",
        "2",
        "--no-progress",
    ]
    run = on_ranks(2, [*argv, "--out", str(tmp_path / "cal")], timeout=240)
    assert run.returncode == 0, run.stdout + run.stderr
    names = read(tmp_path / "cal" / rank_file(0)).names
    assert sum(name.startswith("step dlrm row") for name in names) == 2
    launched(
        2, "--sharding", "row", "--save-plan", str(tmp_path / "plan.json"), "--out", str(tmp_path / "saved")
    )
    assert main(["price", str(tmp_path / "plan.json"), "--calibration", str(tmp_path / "cal"), "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["tables"]["plans"]
    assert row["ranks"] == 2 and row["communication_s"] > 0 and row["overhead_s"] == 0
    assert row["compute_s"] > 0 and row["memory_bytes"] > 3 * 200 * 6 * 2
