"""result.json against the traces beside it: what does not fit is named, and nothing is concluded from the run."""

import shutil

import pytest

from analysis.load.frames import load
from tests.analysis.synthetic import flip_bit, write_result, write_run
from tests.tampering import altered


def reason(run):
    """Why the run is left out."""
    frames = load([run])
    assert frames.runs.empty
    (text,) = frames.excluded[frames.excluded["what"] == "contradiction"]["reason"]
    return text


@pytest.mark.parametrize("more", [{}, {"repeats": 2}])
def test_what_a_run_writes_contradicts_nothing(tmp_path, more):
    run = write_run(tmp_path / "r", **more)
    assert load([run]).excluded.empty


def test_traces_other_than_those_that_the_result_names_are_not_used(tmp_path):
    """A rank's file of a run with the same identity, whole in itself."""
    run, other = write_run(tmp_path / "r"), tmp_path / "o"
    write_run(other, run_id=str(run), change=lambda repeat, step, field: flip_bit(field, 0))
    shutil.copy(other / "rank-00001.h5", run)
    assert "result.json was written for another rank-00001.h5" in reason(run)


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """A run whose result.json every test writes anew."""
    return write_run(tmp_path_factory.mktemp("sound") / "r")


@pytest.mark.parametrize("content, words", [
    ({"run_id": "another"}, "run_id another"), ({"app": "solver"}, "app solver, the traces coupled"),
    ({"problem": "p1"}, "problem p1"), ({"size": 3}, "size 3, the traces 2"),
    ({"guarantee": "exact"}, "guarantee exact"), ({"seed": 2}, "seed 2"), ({"repeats": 5}, "repeats 5"),
    ({"traces": {}}, "another rank-00000.h5"), ({"exit_code": 1}, "both done and exit code 1"),
    ({"status": "failed", "exit_code": 0}, "both failed and exit code 0"),
    ({"exit_code": 3}, "exit code 3 and names 0 checks"),
    ({"exit_code": 0, "checks": [{"name": "a", "passed": False}]}, "exit code 0 and names 1 checks"),
    ({"fingerprints": ["ab", "cd"]}, "2 final states, the traces have 1 repeats"),
])  # fmt: skip
def test_identity_end_and_number_are_compared(sound, content, words):
    write_result(sound, **content)
    assert words in reason(sound)


def test_a_run_that_is_done_has_whole_traces_of_every_repeat(tmp_path):
    early = write_run(tmp_path / "early", stop={1: 3})
    write_result(early)
    assert "the trace of rank 1 that it ended early" in reason(early)
    few = write_run(tmp_path / "few", repeats=2)
    for path in few.glob("*.h5"):
        altered(path, lambda file: file.attrs.modify("repeats", 3))
    write_result(few)
    assert "2 of 3 repeats" in reason(few)


def test_a_run_that_failed_may_have_traces_of_any_length(tmp_path):
    run = write_run(tmp_path / "r", stop={0: 3}, result=False)
    write_result(run, status="failed", exit_code=1, error="rank 0: no more")
    frames = load([run])
    assert set(frames.excluded["what"]) == {"failed", "incomplete"} and len(frames.runs) == 1
