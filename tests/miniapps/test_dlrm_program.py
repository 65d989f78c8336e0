"""A step of DLRM as a program to be priced: drawn steps, their seconds, the way to a score, what is refused."""

import json

import msgspec
import numpy as np
import pytest
from mpi4py import MPI
from msgspec.structs import replace

from kernels.guarantees import ChoiceError
from miniapps.calibrate import APP as CALIBRATE
from miniapps.calibrate.plans import drawing, space_of
from miniapps.dlrm import APP, ratings
from miniapps.dlrm.config import DlrmConfig
from miniapps.dlrm.program import program_of
from miniapps.dlrm.ratings import Ratings
from miniapps.dlrm.validate import complete
from miniapps.embeddings.bags import Bags
from miniapps.embeddings.sharding import SHARDINGS
from miniapps.errors import UsageError
from miniapps.runner.main import main
from miniapps.runner.options import RunOptions
from miniapps.untrusted.program import Program, Work, read_program, to_json

SIZES = "tables=3 rows=300 pooling=2 width=6 batch=64 hidden=8"
SMALL = ["--tables", "3", "--rows", "300", "--pooling", "2", "--batch", "64", "--set", "embeddings.columns=6", "--set",
         "model.hidden=8"]  # fmt: skip


def drawn(text, seed=1):
    return space_of(text).draw(np.random.default_rng(seed))


def works_of(program):
    """{work: calls} of the first class of ranks."""
    calls = {}
    for segment in program.classes[0].segments:
        for number, count in segment.calls:
            calls[program.works[number]] = calls.get(program.works[number], 0) + count
    return calls


def application(app, out, *argv):
    given = [*argv, "--out", str(out), "--no-progress", "--log-level", "error"]
    return main(app, given, MPI.COMM_SELF)


def test_batches_of_a_range_are_whole_micro_batches():
    for seed in range(50):
        step = drawn("dlrm row batch=100..200 micro=48|64 ranks=2", seed)
        assert step.sizes["batch"] % step.sizes["micro"] == 0 and 100 <= step.sizes["batch"] <= 200


def test_draws_fit_their_ranges_and_are_text_again():
    text = "dlrm table|mixed tables=2..4 rows=100..900 batch=128..512 width=4|8 ranks=2"
    found = [drawn(text, seed) for seed in range(12)]
    for one in found:
        assert str(drawn(str(one))) == str(one)
        assert 2 <= one.sizes["tables"] <= 4 and one.sizes["batch"] % 32 == 0 and one.ranks == 2
        assert one.configured()[0].embeddings.columns == one.sizes["width"]
    assert {len(one.sharding.split(",")) for one in found} > {1}
    assert {one.level for one in found} == {"none", "layout"}
    assert {drawn("dlrm", seed).sharding for seed in range(40)} == set(SHARDINGS)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dlrm tabels=3", "unknown size of dlrm in --plan"),
        ("dlrm rowwise", "unknown sharding of dlrm in --plan"),
        ("dlrm data=recorded", "unknown data of dlrm in --plan"),
        ("dlrm guarantee=fast", "unknown guarantee in --plan"),
        ("dlrm rows=9..3", "the first number of a range is its least"),
        ("dlrm width=9999", "--plan dlrm: width: embeddings.columns must be from 1 to 4096"),
        ("dlrm batch=33", "none of [0-9]+ draws is possible.*choose a multiple of training.micro"),
        ("dlrm row-pooled guarantee=layout", "--sharding row-pooled with --aggregate sorted"),
        ("dlrm table,row tables=3", "2 shardings for 3 tables"),
    ],
)
def test_steps_that_are_none_are_refused(text, message):
    with pytest.raises((UsageError, ChoiceError), match=message):
        drawn(text)


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("sharding", [*SHARDINGS, "row,table:rank=0,column"])
def test_a_timed_step_has_seconds_of_every_work_of_its_program(sharding, ranks):
    step = drawn(f"dlrm {sharding} {SIZES} ranks={ranks} guarantee=none")
    own = drawing("dlrm")
    rehearsal = own.rehearsal(step)
    seconds = rehearsal.run()
    rehearsal.close()
    assert all(each > 0 for each in seconds.values())
    program = own.program(step)
    assert {work.key for work in works_of(program)} == {work.key for work in seconds} | {
        work.key for work in works_of(program) if work.key.endswith("elsewhere by 1")
    }


def test_the_works_are_those_of_the_layers():
    """Products by their shapes, and as many calls of the network as micro-batches under layout."""
    program = drawing("dlrm").program(drawn(f"dlrm table {SIZES} features=5 micro=16 guarantee=layout"))
    calls, micro, products = works_of(program), 16, 6
    (first,) = [work for work in calls if " addmm " in work.key and work.dims == (micro, 5, 8)]
    assert calls[first] == 4 and first.flops == 2 * micro * 5 * 8
    assert any(" addmm " in work.key and work.dims == (micro, 6 + products, 8) for work in calls)
    assert any(" bmm " in work.key and work.dims == (micro, 4, 6, 4) for work in calls)
    lookups = [work for work in calls if " lookup " in work.key]
    assert [work.dims for work in lookups] == [(128, 6, 300, 1)] and calls[lookups[0]] == 3
    assert any("binary_cross_entropy" in work.key for work in calls)
    assert sum(calls[work] for work in calls if "_local_scalar_dense" in work.key) == 4
    assert not program.classes[0].waits
    weights, states, held = program.classes[0].memory
    assert weights > states == 4 * (8 * 5 + 8 + 6 * 8 + 6 + 8 * 12 + 8 + 8 + 1) and held > 0
    assert weights == states + 3 * 300 * 6 * 4


def test_a_program_needs_no_memory_for_tables():
    big = drawn("dlrm row tables=2 rows=1048576 width=64 batch=64 pooling=1 ranks=2 guarantee=none")
    program = drawing("dlrm").program(big)
    assert [of.memory[0] > 2**20 * 64 * 4 for of in program.classes] == [True, True]


def test_the_plan_of_many_tables_can_be_read_again(tmp_path):
    every = ",".join(["table:rank=0", "row-pooled"] * 20)
    asked = [
        "--tables",
        "40",
        "--rows",
        "100",
        "--sharding",
        every,
        "--save-plan",
        str(tmp_path / "plan.json"),
    ]
    assert application(APP, tmp_path / "saved", *asked) == 0
    assert read_program(tmp_path / "plan.json").title == "dlrm, 20 x table, 20 x row-pooled over 1 rank"


def test_ratings_have_programs_too(monkeypatch):
    """Bags of several lengths, on two ranks, in place of the real ratings."""
    rng, count = np.random.default_rng(1), 400
    lengths = [np.ones(count, np.int32)] * 7 + [rng.integers(1, 4, count).astype(np.int32)]
    bags = [
        Bags(each, rng.integers(0, rows, int(each.sum())).astype(np.int32))
        for each, rows in zip(lengths, ratings.ROWS, strict=True)
    ]
    given = Ratings(rng.random((count, 4), np.float32), bags, rng.integers(0, 2, count).astype(np.uint8))
    monkeypatch.setattr(ratings, "load", lambda directory="": given)
    config, options = DlrmConfig(), RunOptions(guarantee="layout")
    config.data.name, config.training.batch, config.embeddings.sharding = "ml-100k", 64, "row"
    complete(config, options, 2)
    program = program_of(config, options, 2, "ratings")
    sent = [{wait.name: wait.nbytes for wait in of.waits} for of in program.classes]
    assert len(sent) == 2 and all(of["exchange.rows"] >= 4 * 8 * 32 for of in sent)
    assert any("samples own given" in work.key for work in program.works)
    own = drawing("dlrm")
    step = drawn("dlrm row data=ml-100k width=4 batch=64 guarantee=none")
    assert str(drawn(str(step))) == str(step)
    rehearsal = own.rehearsal(step)
    seconds = rehearsal.run()
    rehearsal.close()
    assert {work.key for work in works_of(own.program(step))} <= {work.key for work in seconds}
    with pytest.raises(UsageError, match=r"embeddings\.rows applies to --data zipf, not to --data ml-100k"):
        drawn("dlrm row data=ml-100k rows=9 guarantee=none")


def calibrated(out, plan):
    few = ["--budget", "0", "--what", "programs", "--plan", plan, "--programs", "1"]
    assert application(CALIBRATE, out, *few) == 0
    return out


def test_a_saved_plan_is_priced_into_a_ledger_before_its_run(tmp_path, capsys):
    from analysis.__main__ import main as analyse
    from jobs import applications

    cal = calibrated(tmp_path / "cal", f"dlrm table {SIZES} guarantee=layout")
    asked = [*SMALL, "--guarantee", "layout", "--steps", "4", "--evaluate-every", "0"]
    saved, ledger = tmp_path / "plan.json", tmp_path / "ledger.jsonl"
    assert application(APP, tmp_path / "saved", *asked, "--save-plan", str(saved)) == 0
    program = read_program(saved)
    assert program.app == "dlrm" and program.title == "dlrm, table over 1 rank"
    assert applications.step_of("dlrm", asked, 1) == (replace(program, environment={}), 4)
    priced = ["price", str(saved), "--calibration", str(cal), "--ledger", str(ledger)]
    capsys.readouterr()
    assert analyse(priced) == 0
    assert application(APP, tmp_path / "run", *asked, "--ledger", str(ledger)) == 0
    capsys.readouterr()
    assert analyse(["score", str(ledger), str(tmp_path / "run"), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert "no run was behind the prediction" in document["sentences"][0]
    (target,) = document["tables"]["targets"]
    assert target["app"] == "dlrm" and target["runs"] == 1
    wrong = application(APP, tmp_path / "other", *asked, "--save-plan", str(tmp_path / "no" / "plan.json"))
    assert wrong == 1
    assert "--save-plan" in capsys.readouterr().err


def test_a_step_that_the_memory_does_not_hold_is_refused_before_it_is_drawn(tmp_path, capsys):
    large = "dlrm tables=1000 rows=1000000 width=1024 guarantee=none"
    assert (
        application(CALIBRATE, tmp_path / "cal", "--what", "programs", "--plan", large, "--programs", "1")
        == 2
    )
    said = capsys.readouterr().err
    assert "of memory" in said and "choose smaller sizes in --plan" in said
    assert not (tmp_path / "cal").exists()


def test_a_missing_kernel_and_a_wrong_one_are_refused_by_name(tmp_path, capsys):
    from analysis.__main__ import main as analyse

    cal = calibrated(tmp_path / "cal", f"dlrm table {SIZES} guarantee=none")
    plan = tmp_path / "plan.json"

    def refused(program: Program) -> str:
        plan.write_bytes(to_json(program))
        capsys.readouterr()
        assert analyse(["price", str(plan), "--calibration", str(cal)]) == 2
        return capsys.readouterr().err

    row = drawing("dlrm").program(drawn(f"dlrm row {SIZES} guarantee=none"))
    said = refused(row)
    assert "has no time of" in said and ", row" in said and "calibrate with" in said
    table = drawing("dlrm").program(drawn(f"dlrm table {SIZES} guarantee=none"))
    first = table.works[0]
    other = Work(first.key.replace("fingerprint", "thumbprint"), first.dims, first.flops, first.nbytes)
    wrong = msgspec.structs.replace(table, works=(other, *table.works[1:]))
    assert "has no time of thumbprint" in refused(wrong)
