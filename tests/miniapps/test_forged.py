"""What was forged, and what was mixed up: caught, or named among what is not covered."""

import contextlib
import io
import json
import shutil

import numpy as np
import pytest
from mpi4py import MPI
from scipy.stats import binom

from analysis.__main__ import main as analysis
from miniapps.__main__ import main as miniapps
from miniapps.coupled import APP
from miniapps.runner.main import main
from miniapps.trace import read
from miniapps.trace.chain import counted
from miniapps.trace.heads import checkpoint_file
from miniapps.verify.draw import chance
from tests.forging import forged, rewritten
from tests.tampering import altered

TINY = ["--closure", "none", "--guarantee", "layout", "--steps", "12", "--checkpoint-every", "2", "--quiet",
        "--record", "messages", "--log-all-ranks", "--log-level", "warning",
        "--set", "grid.nx=16", "--set", "grid.ny=16", "--set", "grid.bx=8", "--set", "grid.by=8"]  # fmt: skip


def launched(out, *options):
    """A run on one rank, of seven intervals; what it printed is beside it."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        assert main(APP, [*TINY, "--out", str(out), *options], MPI.COMM_SELF) == 0
    out.with_suffix(".txt").write_text(printed.getvalue())
    return out


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return launched(tmp_path_factory.mktemp("forged") / "run")


@pytest.fixture
def copy(run, tmp_path):
    shutil.copy(run.with_suffix(".txt"), tmp_path / "run.txt")
    return shutil.copytree(run, tmp_path / "run")


@pytest.fixture
def answer(tmp_path, monkeypatch, capsys):
    """The exit code and the document of `chain` or `verify`; where it is refused, standard error."""
    monkeypatch.chdir(tmp_path)

    def call(command, *argv):
        capsys.readouterr()
        words = [command, *map(str, argv), "--json"]
        code = analysis(words) if command == "chain" else miniapps(words)
        streams = capsys.readouterr()
        return code, json.loads(streams.out) if code in (0, 3) else streams.err

    return call


def first(document):
    return document["sentences"][0]


def other_value(step):
    """A change of the first number that a step recorded."""

    def change(file):
        place = int(np.flatnonzero(file["values/step"][...] == step)[0])
        file["values/value"][place] += 1e-9

    return change


# ---- intervals


def test_a_forged_interval_is_told_by_published_heads_and_by_executing_it(copy, answer):
    forged(copy, other_value(5))
    assert answer("chain", copy)[0] == 0  # all of it fits: nothing else could tell
    for command in ("chain", "verify"):
        code, document = answer(command, copy, "--published", copy.with_suffix(".txt"))
        assert code == 3 and "step 6: the head is" in first(document) and "was published" in first(document)
    code, document = answer("verify", copy, "--fraction", 1)
    assert code == 3 and [each["until"] for each in document["executed"] if not each["agrees"]] == [6]
    assert "NOT VERIFIED: step 5" in first(document)


@pytest.mark.slow
@pytest.mark.parametrize("step", [3, 8, 9])
def test_forged_intervals_are_caught_as_often_as_is_said(copy, answer, step):
    """At the default fraction, where the cheat knows the rule and not the challenge."""
    forged(copy, other_value(step))
    trials, chances, met = 60, set(), 0
    for trial in range(trials):
        code, document = answer("verify", copy, "--challenge", f"trial {trial}")
        met += code == 3
        chances.add(document["chances"][0]["chance"])
        assert len(document["executed"]) == 3
    assert chances == {chance(7, 3, 1)}
    assert chance(7, 3, 1) == pytest.approx(1 / 5)
    low, high = binom.interval(0.999, trials, 1 / 5)
    assert low <= met <= high


def test_the_draw_can_be_repeated_and_its_chance_without_a_challenge_is_none(run, answer):
    _, document = answer("verify", run)
    assert document["chances"][0] == {"wrong": 1, "chance": pytest.approx(1 / 5)}
    assert any("neither the first nor the last" in note for note in document["notes"])
    again = answer("verify", run, "--challenge", document["challenge"])[1]
    ends = [[each["until"] for each in said["executed"]] for said in (document, again)]
    assert ends[0] == ends[1] and len(ends[0]) == 3 and {2, 13} < set(ends[0])
    _, document = answer("verify", run, "--challenge", "")
    assert document["chances"][0] == {"wrong": 1, "chance": 0.0}


def test_heads_that_were_not_published_are_not_drawn_from(copy, answer):
    lines = copy.with_suffix(".txt").read_text().splitlines(keepends=True)
    few = copy.with_name("few.txt")
    few.write_text("".join(lines[:4]))
    code, document = answer("verify", copy, "--published", few)
    assert code == 0 and document["published"] == {"file": str(few), "compared": 4, "of": 7}
    assert {each["until"] for each in document["executed"]} <= {2, 4, 6, 8} >= {2, 8}
    assert document["chances"][0]["chance"] == pytest.approx(1 / 2)
    assert any("no head after them was published" in note for note in document["notes"])


# ---- what is covered, and what is not


def test_a_result_that_was_changed_is_contradicted_by_the_trace(run, copy, answer, tmp_path):
    changes = {
        "final states": lambda result: result.update(fingerprints=["0" * 32]),
        "figures of merit": lambda result: result["fom"]["steps"].update(value=1e-9),
        "checks": lambda result: result["checks"][0].update(detail="fine"),
        "times": lambda result: result.update(wall_s=0.1),
        "environment": lambda result: result["environment"].update(cpu="another"),
    }
    copies = []
    for words, change in changes.items():
        changed = shutil.copytree(copy, tmp_path / words.replace(" ", "-"))
        rewritten(changed, change)
        code, document = answer("chain", changed)
        assert code == 3 and f"other {words} than the trace of rank 0 states" in first(document), words
        assert answer("verify", changed)[0] == 3
        copies.append(str(changed))
    page = tmp_path / "page.html"
    assert analysis(["report", str(run), *copies, "--out", str(page), "--no-cache"]) in (0, 2)
    text = page.read_text()
    assert all(f"other {words} than the trace of rank 0" in text for words in changes)
    assert "the guarantee is broken" not in text.lower()


def test_a_final_state_that_is_forged_throughout_is_not_that_of_the_head(copy, answer):
    forged(copy, result=lambda result: result.update(fingerprints=["0" * 32]))
    code, document = answer("chain", copy)
    assert code == 3 and "the final state of repeat 0 is 000" in first(document)


@pytest.mark.parametrize("every", [9, pytest.param(1, marks=pytest.mark.slow)])
def test_whatever_can_be_changed_unseen_is_named_as_not_covered(run, copy, answer, every):
    """Columns, attributes and keys are changed in turn, and all that it takes is forged; heads were published."""
    sound = read(run / "rank-00000.h5")
    _, document = answer("chain", copy)
    listed = {(each["kind"], each["name"]) for each in document["tables"]["not_covered"]}
    named = set()
    changes = []
    for table, columns in sound.tables.items():
        whole = ("table", table) in listed
        counts = np.array([whole or counted(name) for name in sound.names])[columns["name"]]
        for column in columns if counts.any() else ():
            kind = ("table", table) if whole else ("column", f"{table}.{column}")
            changes.append((kind, {"change": more_by_one(table, column, int(np.flatnonzero(counts)[0]))}))
    changes += [
        (("attribute", key), {"change": another(key)})
        for key in sound.attributes
        if key not in ("tracer", "result")
    ]
    own = ("chain", "traces", "digest")  # made anew
    changes += [
        (("result", key), {"result": other_part(key)})
        for key in json.loads((run / "result.json").read_text())
        if key not in own
    ]
    assert len(changes) > 70
    for kind, change in changes[::every]:
        shutil.rmtree(copy)
        shutil.copytree(run, copy)
        try:
            forged(copy, **change)
        except Exception:  # what no reader takes
            continue
        code, answered = answer("chain", copy, "--published", copy.with_suffix(".txt"))
        if code == 0:
            named.add(kind)
            assert kind in listed, kind
        else:
            assert code in (2, 3), answered
    if every == 1:
        assert {("table", "events"), ("column", "values.after"), ("result", "wall_s")} <= named
        assert {name for kind, name in named if kind == "result"} >= {"fom", "checks", "environment"}
    assert not {"values.value", "fingerprints.hi", "fingerprints.step"} & {name for _, name in named}
    assert ("file", "rank-00000.log") in listed


def more_by_one(table, column, row):
    def change(file):
        file[table][column][row] += 1

    return change


def another(key):
    def change(file):
        old = file.attrs[key]
        file.attrs[key] = str(old).replace("a", "b") + " " if isinstance(old, str) else old + 1

    return change


def other_part(key):
    def change(result):
        old = result.get(key)
        result[key] = old + "0" if isinstance(old, str) else 1 if old is None else type(old)()

    return change


def test_verify_lists_what_it_did_not_cover(run, answer, capsys):
    _, document = answer("verify", run)
    kinds = {each["kind"] for each in document["not_covered"]}
    assert kinds >= {"table", "column", "rows", "attribute", "result", "file", "interval", "heads"}
    assert miniapps(["verify", str(run)]) == 0
    lines = capsys.readouterr().out.splitlines()
    (said,) = [line for line in lines if line.startswith("Not covered: ")]
    assert all(word in said for word in ("events (times)", "figures of merit, checks, times", "4 intervals"))


# ---- mixed up


def test_files_of_other_runs_are_mixed_and_accuse_nobody(run, copy, answer, tmp_path):
    other = launched(tmp_path / "other", "--seed", "2")
    same = launched(tmp_path / "same")
    for source, name in ((other, "result.json"), (other, "rank-00000.h5"), (other, checkpoint_file(0, 4)),
                         (same, "result.json"), (same, "rank-00000.h5")):  # fmt: skip
        before = (copy / name).read_bytes()
        shutil.copy(source / name, copy / name)
        for command in ("chain", "verify"):
            code, errors = answer(command, copy)
            assert code == 2 and f"mixed: {copy}: " in errors, (name, errors)
        (copy / name).write_bytes(before)
    shutil.copy(same / checkpoint_file(0, 4), copy / checkpoint_file(0, 4))  # it is the same in every bit
    assert answer("chain", copy)[0] == 0


def test_a_checkpoint_of_another_step_is_mixed(copy, answer):
    shutil.copy(copy / checkpoint_file(0, 4), copy / checkpoint_file(0, 6))
    code, errors = answer("chain", copy)
    assert code == 2 and "the file is of another run, or of another step" in errors


def test_a_run_that_continues_from_a_checkpoint_that_is_another_by_now_is_not_accused(copy, answer, tmp_path):
    start = copy / checkpoint_file(0, 4)
    rest = launched(tmp_path / "rest", "--restart", str(start))
    code, document = answer("verify", rest)
    assert code == 0 and ("steps", "up to 4") in {(e["kind"], e["name"]) for e in document["not_covered"]}
    other = launched(tmp_path / "other", "--seed", "2")
    shutil.copy(other / checkpoint_file(0, 4), start)
    code, errors = answer("verify", rest)
    assert code == 2 and "mixed: " in errors and "copy the original checkpoint there" in errors


def test_missing_and_further_checkpoints_change_no_head(copy, answer):
    shutil.copy(copy / checkpoint_file(0, 4), copy / "checkpoints" / "repeat-0-step-000099.h5")
    (copy / checkpoint_file(0, 2)).unlink()
    code, document = answer("chain", copy)
    assert code == 0
    assert ("file", "checkpoints/repeat-0-step-000099.h5") in {
        (each["kind"], each["name"]) for each in document["tables"]["not_covered"]
    }


def test_a_trace_that_was_changed_outside_its_heads_has_another_seal(copy, answer):
    altered(copy / "rank-00000.h5", lambda file: file["events"]["end"].__setitem__(0, 5))
    code, document = answer("chain", copy)
    assert code == 3 and "result.json was written for another rank-00000.h5" in first(document)


# ---- published heads


def published(copy, change):
    path = copy.with_suffix(".txt")
    path.write_bytes(change(path.read_text()).encode("latin-1"))
    return path


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text, "7 of 7 heads were published in"),
        (lambda text: text + text, "7 of 7 heads were published in"),
        (lambda text: text.replace("\n", "\r\n"), "7 of 7 heads were published in"),
        (lambda text: text.replace("CHAIN", "0: CHAIN"), "7 of 7 heads were published in"),
        (lambda text: text.replace("CHAIN", "[1,0]<stdout>:CHAIN"), "7 of 7 heads were published in"),
        (lambda text: "caf\xe9 " + text, "7 of 7 heads were published in"),
        (lambda text: "".join(text.splitlines(True)[2:3]), "1 of 7 heads were published in"),
        (lambda text: text[:160], "1 of 7 heads were published in"),
    ],
)
def test_it_is_said_how_many_published_heads_were_compared(copy, answer, change, said):
    code, document = answer("chain", copy, "--published", published(copy, change))
    lines = capsys_lines(copy)
    assert code == 0 and said in lines
    rows = document["tables"]["published"]
    assert len(rows) == 7 and sum(row["compared"] == "equal" for row in rows) == int(said[0])


def capsys_lines(copy):
    """What `chain` prints for people."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        analysis(["chain", str(copy), "--published", str(copy.with_suffix(".txt"))])
    return " ".join(printed.getvalue().split())


@pytest.mark.parametrize("command", ["chain", "verify"])
def test_two_heads_of_one_step_are_refused(copy, answer, command):
    path = published(copy, lambda text: text + f"CHAIN step=4 head={'0' * 64}\n")
    code, errors = answer(command, copy, "--published", path)
    assert code == 2 and "lines 2 and " in errors and "name two heads of step 4" in errors


@pytest.mark.parametrize("command", ["chain", "verify"])
def test_a_published_head_that_the_run_lacks_is_told(copy, answer, command):
    path = published(copy, lambda text: text + f"CHAIN step=5 head={'0' * 64}\n")
    code, document = answer(command, copy, "--published", path)
    assert code == 3 and "step 5: a head was published, and the run has none there" in first(document)


def test_heads_before_the_checkpoint_of_a_restart_are_counted_and_not_missed(copy, answer, tmp_path):
    rest = launched(tmp_path / "rest", "--restart", str(copy / checkpoint_file(0, 4)))
    code, document = answer("verify", rest, "--published", copy.with_suffix(".txt"))
    assert code == 0 and document["published"]["compared"] == 5
    assert any(
        "before the checkpoint from which the run continues: step 2" in note for note in document["notes"]
    )
    path = published(copy, lambda text: "".join(text.splitlines(True)[:1]))
    code, errors = answer("chain", rest, "--published", path)
    assert code == 2 and "nothing was compared" in errors
