"""Random options, of words that are there and words that are not, in every order: a sentence, never a traceback."""

import copy
import random

import pytest
import torch

from kernels.guarantees import ChoiceError
from miniapps.errors import UsageError
from miniapps.mesh import validate
from miniapps.mesh.config import MeshConfig
from miniapps.partition import models
from miniapps.partition.asking import asked
from miniapps.partition.capture.export import export
from miniapps.partition.commands import parser
from miniapps.partition.cuts.axes import AxisError, evenly
from miniapps.partition.cuts.mesh import Mesh
from miniapps.partition.execution.run import Program
from miniapps.partition.planning.plan import plan
from miniapps.partition.showing.explain import as_text, explain
from miniapps.runner.options import RunOptions

REFUSED = (UsageError, ChoiceError, AxisError)
WORDS = [
    "batch",
    "heads",
    "ff",
    "hidden",
    "rows",
    "columns",
    "experts",
    "stored",
    "data",
    "model",
    "width",
    "layers",
    "x",
    "",
]
NUMBERS = [
    "1",
    "2",
    "3",
    "4",
    "7",
    "8",
    "1",
    "2",
    "0",
    "-1",
    "2.5",
    "1e3",
    "²",
    "٣",
    "9" * 30,
    "9" * 5000,
    "",
    "n",
    " 2",
]
RECIPES = ["dp", "tp", "dp+tp", "zero", "spatial", "dp+spatial", "expert", "dp", "none", ""]
SIGNS = ["=", "=", "=", "=", "=", "==", ":", " = ", ""]


def some(rng, make):
    """Up to three parts between commas, or what is nearly that."""
    return rng.choice([",", ",", ",", ";", ",,"]).join(make() for _ in range(rng.randint(0, 3)))


def pairs(rng, values):
    return some(rng, lambda: rng.choice(WORDS) + rng.choice(SIGNS) + rng.choice(values))


def drawn(rng):
    """(model, recipe, mesh, map, axes, blocks)."""
    name = rng.choice(models.names())
    recipe = rng.choice([*models.model(name).RECIPES, *RECIPES])
    carriers = models.model(name).RECIPES.get(recipe, {"batch": "data"})
    mesh = rng.choice([",".join(f"{by}={rng.choice('11224378')}" for by in dict.fromkeys(carriers.values())),
                       pairs(rng, NUMBERS)])  # fmt: skip
    return (
        name,
        recipe,
        mesh,
        rng.choice(["", pairs(rng, WORDS)]),
        rng.choice(["", ",".join(carriers), some(rng, lambda: rng.choice(WORDS))]),
        rng.choice(["", "batch=4", pairs(rng, NUMBERS)]),
    )


def test_options_of_explain_are_taken_or_refused_in_a_sentence():
    rng, taken = random.Random(0), 0
    for _ in range(600):
        name, recipe, mesh, carried, axes, blocks = drawn(rng)
        words = ["--recipe", recipe, "--mesh", mesh, "--map", carried, "--axes", axes, "--blocks", blocks]
        argv = [f"{key}={value}" for key, value in zip(words[::2], words[1::2], strict=True)]
        try:
            mesh = asked(parser().parse_args(["explain", name, *argv])).mesh
            taken += 1
            assert mesh.size <= 8**2
        except REFUSED as error:
            assert len(str(error)) > 20, argv
    assert taken > 30  # so that what is sound is drawn too


def test_options_of_training_are_taken_or_refused_in_a_sentence():
    rng, taken = random.Random(1), 0
    options = RunOptions()
    for _ in range(500):
        config = copy.deepcopy(MeshConfig())
        config.model.name, config.mesh.recipe, config.mesh.mesh, *rest = drawn(rng)
        config.mesh.map, config.mesh.axes, config.mesh.blocks = rest
        config.data.name = "text" if config.model.name in ("gpt", "bert") else "blobs"
        config.model.hidden = rng.choice([4, 16, 64])
        config.training.batch, config.training.micro, config.seeds.data = 64, rng.choice([8, 32]), 1
        try:
            validate.complete_mesh(config, size := rng.choice([1, 1, 2, 4]))
            validate.validate(config, options, size)
            taken += 1
        except REFUSED as error:
            assert len(str(error)) > 20
    assert taken > 10


@pytest.mark.parametrize(
    "command", [["explain"], [], ["explain", "mlp", "--mesh"], ["plan"], ["explain", "mlp", "--x"]]
)
def test_what_is_no_command_ends_with_2(command, capsys):
    with pytest.raises(SystemExit) as ended:
        parser().parse_args(command)
    assert ended.value.code == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert said.endswith("--help shows the usage")


def test_an_operation_without_a_rule_runs_whole_and_is_named():
    class Step(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 4)

        def forward(self, x):
            return torch.special.i0e(self.layer(x)).sum()

    torch.manual_seed(0)
    step, x = Step(), torch.randn(6, 4)
    found = plan(export(step, (x,)), [evenly("batch", 6, 3)], {0: ("batch", None)})
    shown = as_text(explain(found, Mesh((("data", 3),), (("batch", "data"),))), "step")
    assert "no rule for aten.special_i0e.default: " in shown
    program = Program(None, found, Mesh((("data", 1),)), "run")
    given = {("parameter", key): p.detach() for key, p in step.named_parameters()} | {("input", "0"): x}
    assert program(program.sources(given))[0].item() == pytest.approx(step(x).item(), rel=1e-5)
