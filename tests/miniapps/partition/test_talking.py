"""Messages between the blocks of a manual region: values, gradients, and what is refused."""

import threading
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from kernels.guarantees import ChoiceError  # noqa: E402
from miniapps.errors import UsageError  # noqa: E402
from miniapps.partition.capture.export import export  # noqa: E402
from miniapps.partition.cuts.axes import evenly  # noqa: E402
from miniapps.partition.cuts.mesh import Mesh  # noqa: E402
from miniapps.partition.execution.compute import Kernels  # noqa: E402
from miniapps.partition.execution.regions import region_of, talks  # noqa: E402
from miniapps.partition.execution.run import Program  # noqa: E402
from miniapps.partition.manual import backward, forward, manual  # noqa: E402
from miniapps.partition.manual.messages import Together  # noqa: E402
from miniapps.partition.planning.plan import plan  # noqa: E402
from miniapps.partition.pricing.alone import Alone  # noqa: E402
from miniapps.partition.pricing.dry import dry_run  # noqa: E402
from miniapps.partition.pricing.events import Told  # noqa: E402
from miniapps.partition.pricing.program import program_of  # noqa: E402
from miniapps.partition.pricing.rehearse import Rehearsal  # noqa: E402
from miniapps.partition.showing.traffic import Counter as Traffic  # noqa: E402

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


@pytest.mark.parametrize("level", ["none", "run", "layout", "exact"])
def test_messages_along_one_of_two_cut_dims(level):
    """Partial results of blocks along the other dim have the same places, and are added."""
    x = torch.linspace(-1, 1, 54).reshape(9, 6)
    weight = torch.linspace(-0.5, 1, 36).reshape(6, 6)
    found = talking(inner)
    program = Program(None, found, Mesh((("data", 1),)), level)
    loss, (gradient,), _ = program(program.sources({("parameter", "weight"): weight, ("input", "0"): x}))
    leaf = weight.double().requires_grad_()
    true = ((x.double() @ leaf).tanh() @ leaf).square().sum()
    true.backward()
    assert abs(loss - true) <= 2.0**-24 * 160 * true
    assert (gradient - leaf.grad).abs().max() <= 2.0**-24 * 160 * leaf.grad.abs().max()


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


# ---- prices


@manual("n., .. -> n.", along="n")
def uneven_rows(where, x, weight):
    """Messages whose size follows the blocks', along another dim too."""
    rows = where.all_gather((x @ weight).T, "n", 1).T
    return where.ppermute(x[:1], "n") * x + rows.sum(0) / where.psum(torch.ones(1).to(x), "n")


@manual("nh, h. -> n.", along="h")
def inner(where, x, weight):
    """A sum along a dim; the other is cut without messages. The total is that of the first block."""
    return where.psum(x @ weight, "h") * float(0 in where["h"])


@manual("n. -> n.", along="n")
def on_the_host(where, x):
    """A tensor that is not where its operand is."""
    return x + torch.from_numpy(where["n"] * 1.0)[:, None].to("cpu")


class Ranks:
    """Ranks that meet in one process; `sent`: bytes of each object that a rank gives to the others."""

    def __init__(self, count):
        self.barrier, self.given = threading.Barrier(count, timeout=60), [None] * count
        self.sent = [[] for _ in range(count)]

    def comm(self, rank):
        def allgather(mine):
            self.sent[rank].append(sum(x.nbytes for _, x in mine[2]))
            self.given[rank] = mine
            self.barrier.wait()
            found = list(self.given)
            self.barrier.wait()
            return found

        return SimpleNamespace(allgather=allgather)


def talking(region, samples=9, width=6):
    """A plan with a region on samples in 4 blocks and, of `inner`, features in 3."""

    class Network(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(width, width))

        def forward(self, x):
            return (
                region((x @ self.weight).tanh(), *[self.weight] * (region is not on_the_host)).square().sum()
            )

    axes = [evenly("batch", samples, 4), evenly("features", width, 3)]
    cuts = {0: ("batch", None)}
    if region is inner:
        cuts[0] = ("batch", "features")
    module, x = Network(), torch.zeros(samples, width)
    return plan(export(module, (x,)), axes, cuts)


@pytest.mark.parametrize("region", [uneven_rows, inner])
@pytest.mark.parametrize("shape", [(1, 1), (2, 1), (3, 1), (1, 2), (2, 2), (4, 3)])
@pytest.mark.parametrize("level", ["none", "layout"])
def test_a_region_sends_the_bytes_that_are_priced(region, shape, level):
    found = talking(region)
    mesh = Mesh((("data", shape[0]), ("model", shape[1])), (("batch", "data"), ("features", "model")))
    expected, groups, bound = {}, {}, {}
    for rank in range(mesh.size):
        events = [each for each in dry_run(found, mesh, rank, level) if isinstance(each, Told)]
        alone = Alone(found, mesh, rank, level)
        bound[rank] = [step for step in alone.bound.steps if talks(step)]
        for number, step in enumerate(bound[rank]):
            own = [each for each in events if each.node == step.node]
            groups.setdefault((number, tuple(alone.between(step)) or (rank,)), []).append(rank)
            expected[number, rank] = [max((n for _, n in each.to), default=0) for each in own]
            assert all([peer for peer, _ in each.to] == [p for p in each.group if p != rank] for each in own)
    for (number, group), members in groups.items():
        assert list(group) == members
        if len(group) == 1:
            assert not expected[number, group[0]]
            continue
        meeting = Ranks(len(group))

        def work(place, number=number, group=group, meeting=meeting):
            alone, step = Alone(found, mesh, group[place], level), bound[group[place]][number]
            function = Kernels(level).function(step.target, step.kernel, {})
            parts = [
                [
                    alone.bound.shape(name) if part is None else part.shape
                    for name, part in zip(step.operands, call.parts, strict=True)
                ]
                for call in step.calls
            ]
            calls = [given(step.args, [torch.ones(shape) for shape in shapes]) for shapes in parts]
            region_of(step, function, meeting.comm(place))(*calls)

        workers = [threading.Thread(target=work, args=(place,)) for place in range(len(group))]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert meeting.sent == [expected[number, rank] for rank in group]
    counter = Traffic(found, mesh)
    told = [counter.step(step) for step in found.steps if talks(step)]
    sent = sum(sum(each) for each in expected.values()) * (len(next(iter(groups))[1]) - 1)
    assert sum(each.nbytes for each in told if each is not None) == sent


def shapes_of(alone, step, call):
    """The shapes of a call's operands."""
    pairs = zip(step.operands, call.parts, strict=True)
    return [alone.bound.shape(name) if part is None else part.shape for name, part in pairs]


def given(args, operands):
    """The arguments with operands in place of their numbers."""
    if isinstance(args, tuple):
        return tuple(given(each, operands) for each in args)
    return operands[int(args[1:])] if str(args).startswith("%") else args


def test_a_region_with_messages_is_rehearsed_alone():
    found = talking(uneven_rows)
    for n in (1, 2, 4):
        mesh = Mesh((("data", n), ("model", 1)), (("batch", "data"), ("features", "model")))
        rehearsal = Rehearsal(found, mesh, n - 1, "layout", [torch.ones(9, 6)])
        for _ in range(2):
            seconds, _, rest, *_ = rehearsal.run()
            assert len(seconds) == len(rehearsal.timed) and (seconds > 0).all() and rest > 0
        assert sum(each.node.startswith("manual") for each in rehearsal.timed) == 2 * (4 // n)


def test_a_region_is_a_kernel_of_its_own_with_its_operations():
    mesh = Mesh((("data", 2), ("model", 1)), (("batch", "data"), ("features", "model")))
    found = program_of(talking(uneven_rows), mesh, "layout", "a plan")
    works = {work.key.split()[1]: work for work in found.works if "uneven_rows" in work.key}
    assert set(works) == {"manual", "manual_backward"}
    assert works["manual"].dims[-2:] == (4, 2)  # blocks on all ranks, on this one
    assert 2 * 2 * 6 * 6 <= works["manual"].flops <= 2 * 3 * 6 * 6
    waits = [wait for wait in found.classes[0].waits if "uneven" not in wait.name and "manual" in wait.name]
    assert [wait.name.split(" of ")[0] for wait in waits[:4]] == [
        "all_gather along n", "ppermute along n", "psum along n", "the end",
    ]  # fmt: skip
    assert all(wait.kind == "exchange" and wait.along == ("data",) for wait in waits)


def test_a_region_that_needs_numbers_has_no_price_and_says_so():
    mesh = Mesh((("data", 2), ("model", 1)), (("batch", "data"), ("features", "model")))
    with pytest.raises(ChoiceError, match="fails on tensors without numbers"):
        dry_run(talking(on_the_host), mesh, 0, "layout")
