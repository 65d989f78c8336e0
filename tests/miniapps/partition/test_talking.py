"""Messages between the blocks of a manual region: values, gradients, and what is refused."""

import pytest

torch = pytest.importorskip("torch")

from kernels.guarantees import ChoiceError  # noqa: E402
from miniapps.errors import UsageError  # noqa: E402
from miniapps.partition.capture.export import export  # noqa: E402
from miniapps.partition.cuts.axes import evenly  # noqa: E402
from miniapps.partition.cuts.mesh import Mesh  # noqa: E402
from miniapps.partition.execution.run import Program  # noqa: E402
from miniapps.partition.manual import backward, forward, manual  # noqa: E402
from miniapps.partition.manual.messages import Together  # noqa: E402
from miniapps.partition.planning.plan import plan  # noqa: E402
from miniapps.partition.pricing.dry import dry_run  # noqa: E402

SIZES = 3, 1, 4  # of blocks


@manual("n., .. -> n.", along="n")
def mixed(where, x, weight):
    """Rows less their mean over all blocks, mixed with all rows."""
    centred = x - where.psum(x.sum(0), "n") / 8
    rows = where.all_gather(centred @ weight, "n")
    return torch.softmax(centred @ rows.T, 1) @ rows


@manual("n. -> n.", along="n")
def turned(where, x):
    """The sum of each block's first row and that of the block before it."""
    return x * (x[:1] + 2 * where.ppermute(x[:1], "n"))


@manual("nh, hn -> n., .h", along="nh")
def crossed(where, x, y):
    """Sums along both letters, one inside the other."""
    return where.psum(x.sum(1, keepdim=True), "h") * y.sum(), where.psum(
        x.sum(0, keepdim=True), "n"
    ) * y.sum()


@manual("n. -> n.", along="n")
def uneven(where, x):
    """Another message in the first block."""
    return where.psum(x, "n") if 0 in where["n"] else where.ppermute(x, "n")


@manual("n. -> n.", along="n")
def raising(where, x):
    """An error in the last block, while the others wait."""
    if 7 in where["n"]:
        raise KeyError("last")
    return where.psum(x, "n")


@manual("n. -> n.")
def silent(where, x):
    """A message that is not declared."""
    return where.psum(x, "n")


class Step(torch.nn.Module):
    """The sum of squares of a region on a linear layer."""

    def __init__(self, region):
        super().__init__()
        self.region = region
        generator = torch.Generator().manual_seed(0)
        self.weight = torch.nn.Parameter(torch.randn(4, 4, generator=generator))

    def forward(self, x):
        more = (self.weight,) if self.region is mixed else ()
        return self.region((x @ self.weight).tanh(), *more).square().sum()


def planned(region):
    """(module, input, plan) with 8 samples in 4 blocks."""
    module, x = Step(region), torch.randn(8, 4, generator=torch.Generator().manual_seed(1))
    return module, x, plan(export(module, (x,)), [evenly("batch", 8, 4)], {0: ("batch", None)})


def ran(module, x, found, level):
    """(loss, gradient of the weight)."""
    program = Program(None, found, Mesh((("data", 1),)), level)
    known = {("parameter", "weight"): module.weight.detach(), ("input", "0"): x}
    loss, (gradient,), _ = program(program.sources(known))
    return loss, gradient


@pytest.mark.parametrize("level", ["none", "layout", "exact"])
def test_blocks_that_talk_compute_what_one_block_does(level):
    module, x, found = planned(mixed)
    loss, gradient = ran(module, x, found, level)
    module.double()
    true = module(x.double())
    true.backward()
    # Sums of at most 8 terms, some 20 of them one after the other, in float32.
    assert abs(loss - true) <= 2.0**-24 * 160 * true
    assert (gradient - module.weight.grad).abs().max() <= 2.0**-24 * 160 * module.weight.grad.abs().max()


def test_a_permutation_passes_blocks_on_and_gradients_back():
    x = [torch.randn(n, 2, generator=torch.Generator().manual_seed(n)) for n in SIZES]
    key, spec = f"{turned.__module__}:turned", "n. -> n. along n"
    lines = [{"n": sum(SIZES[:k])} for k in range(3)]
    where = [(("n", tuple(range(line["n"], line["n"] + n))),) for line, n in zip(lines, SIZES, strict=True)]

    def together(function):
        calls = [lambda *args, at, own=own: function(*args, where=own, at=at) for own in where]
        return Together(key, calls, "n", lines, None)

    found = [each for (each,) in together(forward)(*((key, spec, [part]) for part in x))]
    leaves = [part.clone().requires_grad_() for part in x]
    true = [leaves[k] * (leaves[k][:1] + 2 * leaves[k - 1][:1]) for k in range(3)]
    assert all(torch.equal(a, b) for a, b in zip(found, true, strict=True))
    torch.stack([part.sin().sum() for part in true]).sum().backward()
    given = [[part.detach().cos()] for part in true]
    gradients = together(backward)(*((key, spec, g, [part]) for g, part in zip(given, x, strict=True)))
    for (own,), leaf in zip(gradients, leaves, strict=True):
        torch.testing.assert_close(own, leaf.grad)


def test_sums_along_two_letters_stay_apart():
    x, y = torch.arange(24.0).reshape(4, 6), torch.ones(6, 4)
    key, spec = f"{crossed.__module__}:crossed", "nh, hn -> n., .h along nh"
    lines = [{"n": n, "h": h} for n in (0, 1) for h in (0, 2, 4)]
    calls = [
        lambda *args, at, own=own: forward(*args, where=tuple((k, (v,)) for k, v in own.items()), at=at)
        for own in lines
    ]
    parts = [
        (slice(line["n"], line["n"] + (1 if line["n"] == 0 else 3)), slice(line["h"], line["h"] + 2))
        for line in lines
    ]
    found = Together(key, calls, "nh", lines, None)(*((key, spec, [x[n, h], y[h, n]]) for n, h in parts))
    for (along_h, along_n), (n, h) in zip(found, parts, strict=True):
        assert torch.equal(along_h, x[n].sum(1, keepdim=True) * y[h, n].sum())
        assert torch.equal(along_n, x[:, h].sum(0, keepdim=True) * y[h, n].sum())


@pytest.mark.parametrize(
    ("region", "error", "message"),
    [
        (uneven, ChoiceError, "every block must send the same messages"),
        (raising, KeyError, "last"),
    ],
)
def test_blocks_that_go_different_ways_end_with_a_sentence(region, error, message):
    module, x, found = planned(turned)
    key = f"{region.__module__}:{region.__name__}"
    steps = tuple(
        step
        if getattr(step, "kernel", "") != "manual"
        else type(step)(**vars(step) | {"args": (key, *step.args[1:])})
        for step in found.steps
    )
    with pytest.raises(error, match=message):
        ran(
            module,
            x,
            type(found)(
                **{name: value for name, value in vars(found).items() if name != "hash"} | {"steps": steps}
            ),
            "layout",
        )


def test_messages_must_be_declared_along_a_letter_that_may_be_cut():
    with pytest.raises(
        UsageError, match=r"sends along no letter; decorate it with fpna.manual\(spec, along='n'\)"
    ):
        silent(torch.ones(2, 2))
    with pytest.raises(ChoiceError, match="m is no letter of an operand"):
        manual("n. -> n.", along="m")
    with pytest.raises(UsageError, match="sends along n"):
        manual("nm -> nm", along="n")(lambda where, x: where.psum(x, "m"))(torch.ones(2, 2))


def test_a_region_with_messages_has_no_price():
    _, _, found = planned(mixed)
    with pytest.raises(ChoiceError, match="no price"):
        dry_run(found, Mesh((("data", 1),)), 0, "layout")
