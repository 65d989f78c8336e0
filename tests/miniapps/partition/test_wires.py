"""Gradients of a plan over lossy wires: which sums carry them, the vector of blocks, the bits by hand."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from kernels.guarantees import ChoiceError  # noqa: E402
from miniapps.learning.gradients.buckets import carried  # noqa: E402
from miniapps.partition import models  # noqa: E402
from miniapps.partition.capture.export import export  # noqa: E402
from miniapps.partition.cuts.axes import evenly  # noqa: E402
from miniapps.partition.cuts.mesh import Mesh  # noqa: E402
from miniapps.partition.cuts.steps import Compute, Receive, Reduce, Send, step_operands  # noqa: E402
from miniapps.partition.execution.block_vector import BlockVector  # noqa: E402
from miniapps.partition.execution.place import Place  # noqa: E402
from miniapps.partition.execution.run import Program  # noqa: E402
from miniapps.partition.execution.wires import feeds_back, parted, require_wire  # noqa: E402
from miniapps.partition.planning.early import gradient_sums  # noqa: E402
from miniapps.partition.planning.plan import plan  # noqa: E402
from tests.miniapps.partition.graphs import planned  # noqa: E402

RECIPES = [(name, recipe) for name in models.names() for recipe in models.model(name).RECIPES]


@pytest.mark.parametrize("name, recipe", RECIPES)
def test_only_sums_of_gradients_and_the_loss_travel_over_a_wire(name, recipe):
    """Of every reduced value, the total of a wired one is a gradient or the loss, maybe moved, and no other is."""
    found = planned(name, recipe)[1]
    wired = gradient_sums(found)
    split = parted(found, wired)
    assert split.hash == found.hash
    reduced = {operand: result for step in split.steps if isinstance(step, Reduce)
               for operand, result in zip(step.operands, step.results, strict=True)}  # fmt: skip
    readers = {}
    for step in split.steps:
        if isinstance(step, Reduce):
            assert wired.issuperset(step.operands) or not wired.intersection(step.operands)
            continue
        if isinstance(step, Send | Receive):  # whose results are their operands
            continue
        for operand in step_operands(step):
            readers.setdefault(operand, []).append(step)
    leaving = {found.loss, *(value for _, value in found.gradients)}

    def leaves(value):
        if value not in readers:
            return value in leaving
        moves = [step for step in readers[value] if not isinstance(step, Compute) or step.kernel == "view"]
        return len(moves) == len(readers[value]) and all(leaves(r) for step in moves for r in step.results)

    for operand, result in reduced.items():
        floating = found.values[operand].dtype == "float32" and found.values[operand].combine == "sum"
        assert (operand in wired) == (floating and leaves(result)), operand
    assert wired or not any(result in leaving for result in reduced.values())


@pytest.mark.parametrize("padded", [False, True])
def test_blocks_of_cut_arrays_come_back(padded):
    axes = [evenly("a", 6, 4), evenly("b", 10, 3)]
    mesh = Mesh((("x", 2), ("y", 2)), (("a", "x"), ("b", "y")), 3)
    cuts = [
        (((6, "a"), (2, None)), ((10, "b"),)),
        (((5, None),), ((2, None), (10, "b"), (3, None))),
        (),
    ]
    rng = np.random.default_rng(0)
    for rank in range(4):
        place = Place(axes, mesh, rank, padded)
        vector = BlockVector(place, cuts)
        row = np.full(vector.count, np.nan, np.float32)
        arrays = [rng.standard_normal(place.shape(cut)).astype(np.float32) for cut in cuts]
        for k, array in enumerate(arrays):
            vector.packer(k, row)(torch.from_numpy(array))
        assert not np.isnan(row).any()
        back = vector.unpack(row)
        for array, found, cut in zip(arrays, back, cuts, strict=True):
            inside = np.ix_(
                *(
                    place.indices(dim, n) >= 0
                    for dim, n in zip(cut, (12, 10) if len(cut) else (), strict=False)
                )
            )
            if not padded:
                assert np.array_equal(array, found)
            elif cut == cuts[0]:  # padded elements come back as zeros
                assert (
                    np.array_equal(array[inside], found[inside])
                    and not found[~_grid(inside, found.shape)].any()
                )


def _grid(inside, shape):
    mask = np.zeros(shape, bool)
    mask[inside] = True
    return mask


class Weighted(torch.nn.Module):
    """The gradient of the weights is the sum of the inputs."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(40, 64))

    def forward(self, x):
        return (x * self.weight).sum()


@pytest.mark.parametrize("wire", ["int8", "table:n=4", "e4m3:scale=tensor", "sign"])
def test_the_bits_are_those_of_the_wire_by_hand(wire):
    """Each of 5 blocks has one sample: encode it, add decoded ones exactly, encode the total."""
    torch.manual_seed(0)
    module, x = Weighted(), torch.randn(5, 40, 64)
    found = plan(export(module, (x,)), [evenly("batch", 5, 5)], {0: ("batch", None, None)})
    program = Program(None, found, Mesh((("data", 1),)), "layout", wire=wire)
    given = {("parameter", "weight"): module.weight.detach(), ("input", "0"): x}
    _, (gradient,), _ = program(program.sources(given))
    decoded = np.stack([carried(wire, sample.numpy()) for sample in x]).astype(np.float64)
    wanted = carried(wire, decoded.sum(0).astype(np.float32))
    assert np.array_equal(gradient.numpy(), wanted) and not np.array_equal(gradient.numpy(), x.sum(0).numpy())


@pytest.mark.parametrize(
    "wire, level, message",
    [
        ("packed", "layout", "over a lossy wire"),
        ("fp8:hops=every", "layout", "leave hops=every out"),
        ("table:n=4,cell=tensor", "run", "leave cell=tensor out"),
        ("fp8", "exact", "no total over a lossy wire is exact"),
        ("fp9", "none", "fp9"),
    ],
)
def test_impossible_wires_are_refused(wire, level, message):
    with pytest.raises(ChoiceError, match=message):
        require_wire(wire, level)


@pytest.mark.parametrize("level", ["none", "layout"])
def test_errors_are_added_the_next_time_and_can_be_restored(level):
    torch.manual_seed(0)
    module, x = Weighted(), torch.randn(5, 40, 64)
    found = plan(export(module, (x,)), [evenly("batch", 5, 5)], {0: ("batch", None, None)})
    program = Program(None, found, Mesh((("data", 1),)), level, wire="sign:feedback=on")
    given = program.sources({("parameter", "weight"): module.weight.detach(), ("input", "0"): x})

    def gradient():
        return program(given)[1][0].clone()

    first, kept = gradient(), program.lost()
    second = gradient()
    assert not torch.equal(first, second)
    program.restore_lost(kept)
    assert torch.equal(gradient(), second)
    # What encoding loses comes back: the mean over steps is closer to the sum than one step.
    mean = sum(gradient() for _ in range(30)) / 30
    assert (mean - x.sum(0)).abs().mean() < 0.5 * (first - x.sum(0)).abs().mean()


def test_possible_wires_are_not():
    for wire, level in (
        ("sign:feedback=on", "layout"),
        ("sign:feedback=on", "none"),
        ("as is", "exact"),
        ("fp8", "layout"),
        ("fp8:hops=every", "run"),
        ("table:n=2", "none"),
    ):
        require_wire(wire, level)


class Weights(torch.nn.Module):
    """Four weights, the gradient of each of which is the sum of one input's samples."""

    def __init__(self):
        super().__init__()
        self.weights = torch.nn.ParameterList([torch.ones(33 + k, 64) for k in range(4)])

    def forward(self, x):
        return sum((x[:, : 33 + k] * (k + 1) * weight).sum() for k, weight in enumerate(self.weights))


CHOICES = ("float32", "fp8", "sign:feedback=on", "table:n=4,feedback=on")


def by_hand(wire, contributions, kept):
    """(total, kept errors) of contributions over a wire: encode each, add exactly, encode the total. `kept`: the errors
    of contributions and of the total."""

    def encoded(x, error):
        x = x + error
        decoded = carried(wire, x)
        return decoded, x - decoded if feeds_back(wire) else error

    *errors, of_total = kept
    decoded, errors = zip(*map(encoded, contributions, errors), strict=True)
    total, of_total = encoded(np.sum(decoded, 0, np.float64).astype(np.float32), of_total)
    return total, [*errors, of_total]


@pytest.mark.parametrize("level", ["layout", "none"])
@pytest.mark.parametrize("seed", range(3))
def test_values_of_one_sum_may_have_wires_of_their_own_that_change(level, seed):
    """Each value has the bits that it has alone over its wire, which keeps errors as long as it stays."""
    torch.manual_seed(seed)
    rng, module, x = np.random.default_rng(seed), Weights(), torch.randn(3, 40, 64)
    found = plan(export(module, (x,)), [evenly("batch", 3, 3)], {0: ("batch", None, None)})
    program = Program(None, found, Mesh((("data", 1),)), level, wire=CHOICES[0])
    given = {("parameter", k): w.detach() for k, w in module.named_parameters()} | {("input", "0"): x}
    program(program.sources(given))
    ((sums, blocks, names),) = program.coded
    matrices = [k for k, name in enumerate(names) if len(found.values[name].shape) == 2]
    assert len(matrices) == 4 and len(sums.buffer) == (3 if level == "layout" else 1)
    wires = dict.fromkeys(matrices, "")
    kept = {}
    for _ in range(100):
        for k in matrices:
            if not wires[k] or rng.random() < 0.3:
                before, wires[k] = wires[k], str(rng.choice(CHOICES))
                if wires[k] != before:
                    kept[k] = [np.float32(0)] * (len(sums.buffer) + 1)
        sums.reducer.assign([wires.get(k, CHOICES[0]) for k in range(len(names))])
        totals = blocks.unpack(sums.reducer(sums.buffer))
        for k in matrices:
            (contributions,) = zip(*(blocks.views(k, row) for row in sums.buffer), strict=True)
            wanted, kept[k] = by_hand(wires[k], contributions, kept[k])
            assert np.array_equal(totals[k].view(np.int32), wanted.view(np.int32)), (wires[k], k)
