"""Plans as programs to be priced: spaces of plans, rehearsed steps, all meshes of some ranks, the commands."""

import json
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI
from msgspec.structs import replace

from analysis.predict.reading.calibration import read_calibration
from kernels.guarantees import ChoiceError
from miniapps.calibrate import APP as CALIBRATE
from miniapps.calibrate.plans import draws_of
from miniapps.calibrate.plans import space_of as space_of_plan
from miniapps.errors import UsageError
from miniapps.mesh import APP as MESH
from miniapps.partition import models
from miniapps.partition.capture.export import export
from miniapps.partition.commands import main
from miniapps.partition.cuts.axes import evenly
from miniapps.partition.cuts.mesh import Mesh, parse
from miniapps.partition.planning.plan import plan as plan_of_graph
from miniapps.partition.planning.recipes import deck_of, plan_of
from miniapps.partition.pricing import rehearse
from miniapps.partition.pricing.candidates import candidates
from miniapps.partition.pricing.dry import dry_run
from miniapps.partition.pricing.events import KernelCall, Sent
from miniapps.partition.pricing.keys import counts_of, work_of
from miniapps.partition.pricing.program import classes_of, program_of
from miniapps.partition.pricing.rehearse import Clock, Rehearsal, clock_of
from miniapps.partition.pricing.space import prepared, shares, space_of, widest
from miniapps.runner.main import main as run_application
from miniapps.untrusted.program import read_program, to_json
from tests.declared import check
from tests.miniapps.partition.graphs import exported

MACHINE = """
latency = 5e-6
bandwidth = 25e9
[device]
product = 1e12
achieved = 0.8
memory = 1e11
capacity = 1e9
launch = 1e-6
width = 4
[node]
devices = 2
latency = 1e-6
bandwidth = 1e10
"""
OWN = Path(__file__).parents[2] / "mpi" / "programs" / "own_modules.py"
PERCEPTRON = f"{OWN}:Perceptron 'inputs=float32[6,6] int64[6]' loss=cross_entropy"
FEW = "layers=1 tokens=8 samples=4 batch=4 width=16 feedforward=32"
RING = "sequence=2 token_blocks=4 attention=ring"


def drawn(text, count=20):
    rng = np.random.default_rng(1)
    space = space_of(text)
    return [space.draw(rng) for _ in range(count)]


def test_draws_fit_their_ranges_and_each_other():
    found = drawn(
        "gpt dp|tp width=16..64 layers=1|2 feedforward=4*width data=1..2 model=1|2 guarantee=layout"
    )
    assert {one.recipe for one in found} == {"dp", "tp"}
    for one in found:
        assert 16 <= one.sizes["width"] <= 64 and one.sizes["width"] % 4 == 0
        assert one.sizes["feedforward"] == 4 * one.sizes["width"]
        assert set(one.mesh) == ({"data"} if one.recipe == "dp" else {"model"})
        assert str(space_of(str(one)).draw(np.random.default_rng(0))) == str(one)
    assert {one.ranks for one in drawn("gpt dp+tp ranks=4")} == {4}
    assert {tuple(one.mesh.values()) for one in drawn("gpt dp+tp ranks=4")} == {(2, 2)}
    assert {tuple(one.mesh.values()) for one in drawn("gpt dp+tp ranks=2")} == {(1, 2), (2, 1)}
    for one in drawn(f"{PERCEPTRON} batch=2|3 ranks=2"):
        assert one.ranks == 2 and one.recipe != "pp"
        assert str(space_of(str(one)).draw(np.random.default_rng(0))) == str(one)
    assert list(shares(4, 2)) == [(1, 4), (2, 2), (4, 1)]


def test_attention_and_overlap_take_turns_and_are_kept_in_the_text():
    space = space_of(f"gpt sp {FEW} sequence=2 attention=gathered|ring overlap=off|sums guarantee=none")
    found = space.draws(np.random.default_rng(1), 4).found
    assert {(one.attention, one.overlap) for one in found} == {
        ("gathered", "off"), ("gathered", "sums"), ("ring", "off"), ("ring", "sums"),
    }  # fmt: skip
    for one in found:
        assert str(space_of(str(one)).draw(np.random.default_rng(0))) == str(one)
        assert (f" attention={one.attention}" in str(one)) == (one.attention == "ring")


def test_sizes_that_are_no_whole_numbers_can_be_chosen():
    space = space_of("gpt dp dropout=0.0|0.25 data=2")
    found = {str(space.draw(np.random.default_rng(k))): k for k in range(20)}
    assert {one.partition(" dropout=")[2].split()[0] for one in found} == {"0.0", "0.25"}
    for text in found:
        assert str(space_of(text).draw(np.random.default_rng(0))) == text


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("gpt dp|tp|dp+tp|zero width=16|32|48|64 batch=4 ranks=2", ("recipe", "level")),
        ("gpt dp|tp samples=8..32 batch=4 data=2 model=2 wire=fp8|sign|int8", ("recipe", "level", "wire")),
        ("dlrm table|row|column tables=4..16 batch=128..1024 ranks=2", ("sharding", "level")),
        (f"{PERCEPTRON} dp|tp ranks=2", ("recipe", "level")),
    ],
)
@pytest.mark.parametrize("count", [1, 3, 5, 12])
def test_choices_take_turns(text, names, count):
    (draws,), (again,) = (draws_of([text], count, 5) for _ in range(2))
    assert draws.found == again.found and len(draws.found) == count
    missing = 0
    for name, values in zip(names, draws_choices(text), strict=True):
        often = Counter(getattr(one, name) for one in draws.found)
        assert max(often.values()) - min(often[value] for value in values) <= 1
        missing += sum(not often[value] for value in values)
    assert sum(map(len, draws.missing.values())) == missing and bool(draws.sentence()) == (missing > 0)
    pairs = {tuple(getattr(one, name) for name in names) for one in draws.found}
    assert len(pairs) == min(count, draws.combinations)


def draws_choices(text):
    """The choices of a space that take turns."""
    known = space_of_plan(text)
    return (known.shardings, known.levels) if hasattr(known, "shardings") else (
        known.recipes, known.levels, *[known.wires] * (len(known.wires) > 1)
    )  # fmt: skip


def test_values_without_a_draw_are_named_with_the_reason():
    few, exact = draws_of(
        ["gpt dp|tp|dp+tp ranks=2 guarantee=layout", "gpt dp guarantee=layout|exact wire=fp8"], 2, 1
    )
    (missing,) = few.missing["recipe"]
    assert few.sentence() == f"the 2 drawn plans have none of recipe {missing}; 3 draws have all"
    assert "none of guarantee exact, for example since --wire fp8: no total over" in exact.sentence()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "unknown model of --plan"),
        ("gpt nope", "unknown recipe 'nope'"),
        ("gpt depth=3", "unknown size of gpt in --plan"),
        ("gpt attention=loop", "unknown attention in --plan"),
        ("gpt overlap=all", "unknown overlap in --plan"),
        ("gpt dp attention=ring data=2", "no axis cuts the keys"),
        ("gpt sp attention=ring dropout=0.1 sequence=2", "no axis cuts the keys"),
        ("mlp dp attention=ring", "no axis cuts the keys"),
        (f"{PERCEPTRON} dp attention=ring", "no axis cuts the keys"),
        ("gpt width=9..3", "the first number of a range is its least"),
        ("gpt width=a", "give a whole number"),
        ("gpt guarantee=fast", "unknown guarantee in --plan"),
        ("gpt feedforward=4*depth", "that feedforward in --plan follows"),
        ("gpt dp width=5", "none of 400 draws is possible"),
        ("gpt 'dp", "close the quotation marks"),
        ("gpt loss=mse", "unknown size of gpt in --plan"),
        (f"{OWN}:Perceptron dp", "say what its inputs are"),
        (f"{OWN}:Absent inputs=float32[6,6]", "has no 'Absent'"),
        (f"{OWN}:Perceptron inputs=float32[6,6] loss=square", "unknown loss in --plan"),
        (f"{PERCEPTRON} pp", "no layers are stages"),
        (f"{PERCEPTRON} micro_batches=5", "a multiple of 5"),
        (f"{PERCEPTRON} micro_batches=none", "give a whole number"),
        (f"{PERCEPTRON} width=5", "unknown size of .* in --plan"),
        (f"{PERCEPTRON} dp data=7", "none of 400 draws is possible, since --mesh data=7"),
        ("nowhere.py:Model inputs=float32[6,6]", "there is no file"),
        ("gpt dropout=0.1..0.2", "gpt: dropout=0.1..0.2: give a number such as 0.1"),
        ("gpt dropout=nan", "give a probability"),
    ],
)
def test_spaces_that_are_none_are_refused(text, message):
    with pytest.raises((UsageError, ChoiceError), match=message):
        space_of(text).draw(np.random.default_rng(0))


@pytest.mark.parametrize(
    "text",
    [f"gpt dp+tp {FEW} data=2 model=2", "unet spatial rows=2 columns=2", "moe expert data=4",
     f"gpt zero {FEW} data=4", "mlp tp model=2", f"gpt pp {FEW} stage=1", f"gpt dp+sp {FEW} {RING}",
     f"bert sp {FEW} {RING} overlap=sums"],
)  # fmt: skip
@pytest.mark.parametrize("level", ["none", "layout"])
def test_a_rehearsed_step_has_a_time_for_every_call_of_the_dry_one(text, level):
    (one,) = drawn(f"{text} guarantee={level}", 1)
    plan, mesh, inputs = prepared(one)
    rehearsal = Rehearsal(plan, mesh, mesh.size - 1, level, inputs)
    ran = rehearsal.run()
    events = dry_run(plan, mesh, mesh.size - 1, level)
    assert len(ran.seconds) == len(ran.good) == sum(isinstance(e, KernelCall | Sent) for e in events) > 10
    assert (ran.seconds > 0).all() and ran.rest > 0 and ran.share > 0


def test_what_else_a_core_does_is_no_time_of_one_thread():
    """A sleep stands for it."""
    for threads, least, most in ((1, 0.0, 0.01), (2, 0.05, np.inf)):
        clock = Clock(clock_of(threads))
        clock.begin()
        clock.around(time.sleep)(0.05)
        assert least <= clock.end(1.0).seconds[0] < most


def test_calls_between_quanta_of_which_one_was_long_are_disturbed(monkeypatch):
    (one,) = drawn("mlp tp model=2 guarantee=none", 1)
    plan, mesh, inputs = prepared(one)
    rehearsal = Rehearsal(plan, mesh, 0, "none", inputs)
    short = [True, True, False, True, True]
    looks = iter([*short, *[False] * 10**6])
    monkeypatch.setattr(rehearse, "undisturbed", lambda: next(looks))
    monkeypatch.setattr(rehearse, "EVERY_S", 0.0)  # after every call
    ran = rehearsal.run()
    assert ran.good[:4].tolist() == [True, False, False, True] and not ran.good[4:].any()
    assert not ran.rested and ran.rest > 0
    monkeypatch.setattr(rehearse, "undisturbed", lambda: True)
    ran = rehearsal.run()
    assert ran.good.all() and ran.rested


@pytest.mark.parametrize("level", ["none", "layout"])
def test_drawn_numbers_of_a_plan_have_a_price(level):
    model, deck, graph = exported("gpt", dropout="0.1", layers="1")
    carriers = model.RECIPES["dp"]
    plan, mesh = plan_of(model, deck, graph, list(carriers)), parse("data=2", carriers, 2)
    events = dry_run(plan, mesh, 1, level)
    rehearsal = Rehearsal(plan, mesh, 1, level, model.inputs(deck))
    assert (
        len(rehearsal.run().seconds)
        == len(rehearsal.timed)
        == sum(isinstance(e, KernelCall | Sent) for e in events)
    )
    draws = [event for event in events if isinstance(event, KernelCall) and "native_dropout." in event.target]
    assert len(draws) == 4 and all(each.own for each in draws)  # embedding, scores, two parts of the layer
    for each in draws:
        kept, mask = each.results
        assert kept.shape == mask.shape == each.operands[0].shape and mask.dtype == "bool"
    assert {work_of(each).key for each in draws} == {"kernel native_dropout own float32 by 1"}


def test_drawn_numbers_without_operands_have_the_sizes_of_their_results():
    import torch

    class Noisy(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(6))

        def forward(self, x):
            return (x * self.weight + torch.rand(8, 6)).sum() + (torch.rand(8, 1) * x).sum()

    found = plan_of_graph(export(Noisy(), (torch.ones(8, 6),)), [evenly("batch", 8, 4)], {0: ("batch", None)})
    events = dry_run(found, Mesh((("data", 1),)), 0, "layout")
    draws = [event for event in events if isinstance(event, KernelCall) and "rand" in event.target]
    assert [each.results[0].shape for each in draws] == [(8, 6), (8, 1)]


def test_calls_of_one_kernel_have_as_many_dims():
    dims: dict[str, set[int]] = {}
    for name in models.names():
        for level in ("none", "layout"):
            plan, mesh, _ = prepared(drawn(f"{name} guarantee={level}", 1)[0])
            for event in dry_run(plan, mesh, 0, level):
                if isinstance(event, KernelCall | Sent):
                    work = work_of(event)
                    assert "@" not in work.key and min(work.dims) >= 1
                    dims.setdefault(work.key, set()).add(len(work.dims))
    assert len(dims) > 60
    assert all(len(each) == 1 for each in dims.values())


@pytest.mark.parametrize(
    ("name", "recipe", "mesh", "size"),
    [
        ("gpt", "dp+tp", "data=2,model=2", 4),
        ("unet", "spatial", "rows=3,columns=2", 6),
        ("gpt", "dp", "data=3", 3),
    ],
)
def test_a_class_of_ranks_does_the_same(name, recipe, mesh, size):
    model, deck, graph = exported(name, **({"layers": "1", "batch": "7"} if name == "gpt" else {}))
    carriers = model.RECIPES[recipe]
    plan, over = plan_of(model, deck, graph, list(carriers)), parse(mesh, carriers, size)
    classes = classes_of(plan, over, "layout")
    assert sorted(rank for ranks in classes for rank in ranks) == list(range(size))

    def told(rank):
        events = dry_run(plan, over, rank, "layout")
        works = [work_of(event) for event in events if isinstance(event, KernelCall | Sent)]
        return works, counts_of(events)

    for ranks in classes:
        assert all(told(rank) == told(ranks[0]) for rank in ranks[1:])
    program = program_of(plan, over, "layout", "a step")
    assert [list(each.ranks) for each in program.classes] == classes
    assert all(sum(each.memory) > 0 for each in program.classes)


def test_the_widest_meshes_have_ranks_along_the_most_axes():
    assert widest(shares(4, 2)) == [(2, 2)] and widest(shares(6, 2)) == [(2, 3), (3, 2)]
    assert widest(shares(8, 3)) == [(2, 2, 2)] and widest(shares(5, 2)) == [(1, 5), (5, 1)]
    assert widest(shares(1, 3)) == [(1, 1, 1)] and widest(shares(4, 1)) == [(4,)]


def test_all_meshes_of_some_ranks_and_those_with_too_few_blocks():
    model = models.model("gpt")
    found, refused = candidates(model, deck_of(model, {"batch": "4"}), ("dp", "tp", "dp+tp"), 8)
    assert [str(one) for one in found] == ["dp+tp over data=2,model=4", "dp+tp over data=4,model=2"]
    assert [name for name, _ in refused] == ["dp over data=8", "tp over model=8"]
    alone, _ = candidates(model, deck_of(model, {}), ("dp", "dp+tp"), 1)
    assert [str(one) for one in alone] == ["dp over data=1", "dp+tp over data=1,model=1"]


def test_the_commands_save_price_and_search(tmp_path, capsys):
    machine, saved = tmp_path / "machine.toml", tmp_path / "plan.json"
    machine.write_text(MACHINE)
    sizes = ["--size", "layers=1,tokens=8,samples=4,batch=4"]
    how = ["--machine", str(machine), "--json"]
    assert main(["explain", "gpt", "--mesh", "data=2", *sizes, "--save", str(saved), *how]) == 0
    price = json.loads(capsys.readouterr().out)["price"]
    assert price["tables"]["plans"][0]["ranks"] == read_program(saved).size == 2
    assert main(["search", "gpt", "--ranks", "4", *sizes, "--recipe", "dp,tp,dp+tp", *how]) == 0
    found = json.loads(capsys.readouterr().out)
    check(found, "partition search")
    assert len(found["price"]["tables"]["plans"]) == len(found["candidates"]) == 3
    assert not any(
        "file" in row for table in ("plans", "unpriced") for row in found["price"]["tables"][table]
    )
    assert (
        main(["search", "gpt", "--ranks", "2", *sizes, "--recipe", "dp,tp", "--machine", str(machine)]) == 0
    )
    printed = capsys.readouterr().out
    assert "2 candidates, 2 different programs priced" in printed and "fastest of 2 plans" in printed


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["search", "gpt", "--ranks", "2"], "--calibration DIR is missing"),
        (["search", "gpt", "--ranks", "0", "--calibration", "x"], "--ranks 0: give 1 to"),
        (
            ["search", "gpt", "--ranks", "2", "--machine", "x", "--search", "ordering"],
            "a machine file has one price for all orderings",
        ),
        (
            ["search", "gpt", "--ranks", "11", "--machine", "x"],
            "no recipe has a mesh of 11 ranks (dp over data=11",
        ),
        (["search", "gpt", "--ranks", "2", "--recipe", "nope", "--machine", "x"], "unknown recipe"),
        (["explain", "mlp", "--calibration", "nowhere"], "nowhere"),
        (["explain", "mlp", "--machine", "nowhere.toml"], "nowhere.toml"),
        (
            ["explain", "mlp", "--save", "no/such/directory.json"],
            "--save no/such/directory.json: No such file",
        ),
    ],
)
def test_prices_that_cannot_be_are_refused_in_a_sentence(argv, message, capsys):
    assert main(argv) == 2
    said = capsys.readouterr().err
    assert message in said
    assert "Traceback" not in said


def application(app, out, *argv):
    given = [*argv, "--out", str(out), "--no-progress", "--log-level", "error"]
    return run_application(app, given, MPI.COMM_SELF)


def test_a_saved_plan_is_priced_into_a_ledger_before_its_run(tmp_path, capsys):
    from analysis.__main__ import main as analyse

    plan = "mlp dp features=64 width=16 samples=8 batch=4 classes=10 guarantee=layout"
    few = ["--what", "programs", "--plan", plan, "--programs", "1"]
    assert application(CALIBRATE, tmp_path / "once", *few, "--budget", "0") == 0
    assert read_calibration(tmp_path / "once").step_spread > 0  # of several visits
    assert application(CALIBRATE, tmp_path / "cal", *few, "--budget", "1") == 0
    assert read_calibration(tmp_path / "cal").step_spread > 0  # of several rounds
    ((program, seconds),) = read_calibration(tmp_path / "cal").steps
    assert program.title == str(space_of(plan).draw(np.random.default_rng(0))) and seconds > 0
    asked = ["--model", "mlp", "--data", "blobs", "--batch", "8", "--set", "training.micro=2", "--set",
             "model.hidden=16", "--guarantee", "layout", "--steps", "3", "--evaluate-every", "0"]  # fmt: skip
    saved, ledger = tmp_path / "plan.json", tmp_path / "ledger.jsonl"
    assert application(MESH, tmp_path / "saved", *asked, "--save-plan", str(saved)) == 0
    assert read_program(saved).app == "mesh"
    priced = ["price", str(saved), "--calibration", str(tmp_path / "cal"), "--ledger", str(ledger)]
    capsys.readouterr()
    assert analyse(priced) == 0
    assert application(MESH, tmp_path / "run", *asked, "--ledger", str(ledger)) == 0
    capsys.readouterr()
    assert analyse(["score", str(ledger), str(tmp_path / "run"), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert "no run was behind the prediction" in document["sentences"][0]
    (target,) = document["tables"]["targets"]
    assert target["app"] == "mesh" and target["runs"] == 1
    program, moved = read_program(saved), tmp_path / "moved.json"
    moved.write_bytes(to_json(replace(program, environment=program.environment | {"cpu": "another"})))
    elsewhere = ["price", str(moved), "--calibration", str(tmp_path / "cal")]
    assert analyse(elsewhere) == 2
    assert "calibrated on another machine or version" in capsys.readouterr().err
    assert analyse([*elsewhere, "--any-machine", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["tables"]["plans"]
    assert "of another machine or software: cpu" in row["extrapolated"]
    other = [word if word != "16" else "32" for word in asked]
    wrong = application(MESH, tmp_path / "other", *other, "--save-plan", str(tmp_path / "no" / "plan.json"))
    assert wrong == 1
    assert "--save-plan" in capsys.readouterr().err


def test_calibrations_of_plans_need_plans(tmp_path, capsys):
    assert application(CALIBRATE, tmp_path / "a", "--what", "programs") == 2
    assert "give the plans whose kernels to measure" in capsys.readouterr().err
    assert application(CALIBRATE, tmp_path / "b", "--plan", "gpt dp width=5") == 2
    assert "none of 400 draws is possible" in capsys.readouterr().err
