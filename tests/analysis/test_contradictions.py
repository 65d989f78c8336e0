"""result.json against the traces beside it: what does not fit is named, what fits is not."""

import contextlib
import io
import json

import numpy as np
import pytest

from analysis.load.columns import PAYLOAD
from analysis.load.contradictions import contradictions
from analysis.load.frames import load
from miniapps import coupled, reductions, solver
from miniapps.main import main

GRID = ["--set=grid.nx=16", "--set=grid.ny=16", "--set=grid.bx=8", "--set=grid.by=8"]
SMALL = {
    "coupled": (coupled.APP, [*GRID, "--steps=2"]),
    "solver": (solver.APP, ["--set=grid.nx=6", "--set=grid.ny=6", "--set=grid.nz=6"]),
    "reductions": (reductions.APP, ["--size=100", "--arrays=2", "--samples=2", "--variant=sptr", "--variant=exact"]),
}  # fmt: skip
CASES = {
    "none": ("coupled", ["--closure=none"]),
    "physics": ("coupled", ["--closure=physics"]),
    "solver": ("solver", []),
    "reductions": ("reductions", []),
}


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """{case: (result.json, attributes, last steps, names, tables) of a real run of two repeats}."""
    found = {}
    for case, (app, options) in CASES.items():
        out = tmp_path_factory.mktemp("real") / case
        application, small = SMALL[app]
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            code = main(application, [*small, *options, "--guarantee=run", "--repeats=2", f"--out={out}"])
        assert code in (0, 3)
        found[case] = material(out)
    return found


def material(out):
    """What `assemble` gives, from the frames."""
    frames = load([out], keep=False)
    runs = frames.runs
    head = json.loads(json.dumps(runs.iloc[0].to_dict(), default=str))
    head |= {key: json.loads(head[key]) for key in ("config", "promises")}
    head |= {key: int(head[key]) for key in ("size", "seed")} | {"rank": 0, "complete": True, "repeats": 2}
    last = dict(
        zip(
            runs["repeat"].tolist(),
            zip(runs["last_step"].tolist(), [True] * len(runs), strict=True),
            strict=True,
        )
    )
    tables = {
        table: {
            key: (getattr(frames, table)[key].cat.codes if key == "name" else getattr(frames, table)[key]).to_numpy()
            for key in ("repeat", "step", "name", "occurrence", "block", *PAYLOAD[table])
        }
        for table in PAYLOAD
    }  # fmt: skip
    result = json.loads((out / "result.json").read_text())
    return result, [head], last, frames.names, tables


@pytest.mark.parametrize("case", CASES)
def test_what_a_run_writes_contradicts_nothing(real, case):
    assert contradictions(*real[case]) == []


@pytest.mark.parametrize("case", CASES)
def test_another_final_state_is_noticed(real, case):
    result, *rest = real[case]
    states = [result["fingerprints"][0], "0" * 32]
    (said,) = contradictions(result | {"fingerprints": states}, *rest)
    assert "repeat" in said and "1" in said and "traces hold" in said


@pytest.mark.parametrize("case", ["none", "physics", "reductions"])
def test_another_last_record_is_noticed(real, case):
    result, heads, last, names, tables = real[case]
    table = "values" if case == "reductions" else "fingerprints"
    word = PAYLOAD[table][0]
    step = 0 if case == "reductions" else last[1][0]
    at = np.flatnonzero((tables[table]["repeat"] == 1) & (tables[table]["step"] == step))
    if case == "reductions":
        at = [i for i in at if names[tables[table]["name"][i]].startswith("sum:exact")]
    changed = {key: column.copy() for key, column in tables[table].items()}
    changed[word].view(np.uint64)[at[0]] ^= np.uint64(1)
    (said,) = contradictions(result, heads, last, names, tables | {table: changed})
    assert said.startswith("result.json says that repeat 1 ended in the state")


def test_weights_are_part_of_the_state_of_a_network_that_learns(tmp_path):
    pytest.importorskip("torch")
    application, small = SMALL["coupled"]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        options = ["--closure=online", "--set=closure.channels=2", "--repeats=2", f"--out={tmp_path / 'a'}"]
        assert main(application, [*small, *options]) in (0, 3)
    result, heads, last, names, tables = material(tmp_path / "a")
    assert contradictions(result, heads, last, names, tables) == []
    prints = {key: column.copy() for key, column in tables["fingerprints"].items()}
    weights = (prints["name"] == names.index("weights")) & (prints["repeat"] == 0)
    prints["hi"][np.flatnonzero(weights)[-1]] ^= np.uint64(1)
    (said,) = contradictions(result, heads, last, names, tables | {"fingerprints": prints})
    assert "repeat 0" in said


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        ({"run_id": "another"}, "run_id another"),
        ({"size": 7}, "size 7"),
        ({"app": "solver"}, "app solver"),
        ({"problem": "p7"}, "problem p7"),
        ({"guarantee": "exact"}, "guarantee exact"),
        ({"seed": 9}, "seed 9"),
        ({"repeats": 3}, "repeats 3"),
        ({"exit_code": 1}, "both done and exit code 1"),
        ({"exit_code": 3}, "exit code 3 and names 0 checks"),
        ({"status": "failed"}, "both failed and exit code 0"),
        ({"fingerprints": ["0" * 32]}, "1 final states"),
    ],
)
def test_identity_end_and_number_are_compared(real, changed, word):
    result, *rest = real["none"]
    result = result | {"exit_code": 0, "checks": []}
    said = contradictions(result | changed, *rest)
    assert any(word in sentence for sentence in said), said
    assert contradictions(result, *rest) == []


def test_a_run_that_is_done_has_whole_traces_of_every_repeat(real):
    result, (head,), last, *rest = real["none"]
    (said,) = contradictions(result, [head, head | {"rank": 4, "complete": False}], last, *rest)
    assert "the trace of rank 4 that it ended early" in said
    (said,) = contradictions(result, [head], {0: last[0]}, *rest)
    assert "the traces hold 1 of 2 repeats" in said


def test_a_run_that_failed_may_have_traces_of_any_length(real):
    result, (head,), _, *rest = real["none"]
    failed = result | {"status": "failed", "exit_code": 1, "fingerprints": []}
    assert contradictions(failed, [head | {"complete": False}], {0: (1, False)}, *rest) == []
