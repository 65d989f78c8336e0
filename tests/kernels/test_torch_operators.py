"""`fpna.torch`: torch's results in a fixed order, forward and backward."""

import functools
import itertools

import numpy as np
import pytest

import fpna.torch as own
from kernels.guarantees import ChoiceError
from kernels.registry import get

torch = pytest.importorskip("torch")

PROMISED = ["exact", "sorted"]
ORDERS = [*PROMISED, "atomic", "emulated:5"]
TYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]


def numbers(*shape, dtype=torch.float64, seed=0, grad=True):
    """Of several decades, so that orders show."""
    random = torch.Generator().manual_seed(seed)
    x = torch.randn(*shape, generator=random, dtype=torch.float64)
    x *= 10.0 ** torch.randint(-4, 1, x.shape, generator=random)
    return x.to(dtype).requires_grad_(grad)


def places(bins, *shape, seed=1):
    return torch.randint(0, bins, shape, generator=torch.Generator().manual_seed(seed))


def prefixes(order):
    """`order`, if prefix sums have it."""
    return order if order in PROMISED else "sorted"


SHAPE = 2, 4, 3
BAGS = torch.tensor([0, 2, 2, 3])
INDEX, ALL, PAIR = places(4, 6), places(4, 2, 6, 3), (places(2, 2, 4), places(3, 4) - 3)
MASK = torch.arange(8).reshape(2, 4) % 3 == 1
PAIR_FIRST = (PAIR[0], places(4, 4) - 4)
# Name: ours and torch's, as functions of (input, other), and the shape of the other.
SAME = {
    "index_add": (
        lambda a, b, o: own.index_add(a, 1, INDEX, b, alpha=-1.5, order=o),
        lambda a, b: torch.index_add(a, 1, INDEX, b, alpha=-1.5),
        (2, 6, 3),
    ),
    "index_select": (
        lambda a, b, o: own.index_select(a, -2, INDEX, order=o) * b,
        lambda a, b: torch.index_select(a, -2, INDEX) * b,
        (2, 6, 3),
    ),
    "scatter_add": (
        lambda a, b, o: own.scatter_add(a, 1, ALL[:, :, :2], b, order=o),
        lambda a, b: torch.scatter_add(a, 1, ALL[:, :, :2], b),
        (2, 6, 2),
    ),
    "scatter_add of rows": (
        lambda a, b, o: own.scatter_add(a, 1, INDEX[None, :, None].expand(2, 6, 3), b, order=o),
        lambda a, b: torch.scatter_add(a, 1, INDEX[None, :, None].expand(2, 6, 3), b),
        (2, 6, 3),
    ),
    "gather": (
        lambda a, b, o: own.gather(a, 1, ALL, order=o) * b,
        lambda a, b: torch.gather(a, 1, ALL) * b,
        (2, 6, 3),
    ),
    "gather of rows": (
        lambda a, b, o: own.gather(a, 1, INDEX[None, :, None].expand(2, 6, 3), order=o) * b,
        lambda a, b: torch.gather(a, 1, INDEX[None, :, None].expand(2, 6, 3)) * b,
        (2, 6, 3),
    ),
    "index_put": (
        lambda a, b, o: own.index_put(a, PAIR_FIRST, b, order=o),
        lambda a, b: torch.index_put(a, PAIR_FIRST, b, accumulate=True),
        (2, 4, 3),
    ),
    "index_put apart": (
        lambda a, b, o: own.index_put(a, (PAIR[0], None, PAIR[1]), b, order=o),
        lambda a, b: torch.ops.aten.index_put(a, [PAIR[0], None, PAIR[1]], b, True),
        (2, 4, 4),
    ),
    "index_put in the middle": (
        lambda a, b, o: own.index_put(a, (None, INDEX - 4), b, order=o),
        lambda a, b: torch.ops.aten.index_put(a, [None, INDEX - 4], b, True),
        (2, 6, 3),
    ),
    "index_put broadcast": (
        lambda a, b, o: own.index_put(a, PAIR_FIRST, b, order=o),
        lambda a, b: torch.index_put(a, PAIR_FIRST, b, accumulate=True),
        (4, 1),
    ),
    "index_put by a mask": (
        lambda a, b, o: own.index_put(a, (MASK,), b, order=o),
        lambda a, b: torch.index_put(a, (MASK,), b, accumulate=True),
        (3,),
    ),
    "embedding": (
        lambda a, b, o: own.embedding(INDEX, a[0], order=o) * b,
        lambda a, b: torch.nn.functional.embedding(INDEX, a[0]) * b,
        (6, 3),
    ),
    **{
        f"embedding_bag {mode}": (
            lambda a, b, o, mode=mode: (
                own.embedding_bag(INDEX, a[0], BAGS, mode=mode, padding_idx=1, order=o) * b
            ),
            lambda a, b, mode=mode: (
                torch.nn.functional.embedding_bag(INDEX, a[0], BAGS, mode=mode, padding_idx=1) * b
            ),
            (4, 3),
        )
        for mode in ("sum", "mean", "max")
    },
    "embedding_bag with weights": (
        lambda a, b, o: own.embedding_bag(INDEX, a[0], BAGS, mode="sum", per_sample_weights=b, order=o),
        lambda a, b: torch.nn.functional.embedding_bag(INDEX, a[0], BAGS, mode="sum", per_sample_weights=b),
        (6,),
    ),
    "mean": (
        lambda a, b, o: own.mean(a, (0, -1), order=o) * b,
        lambda a, b: torch.mean(a, (0, -1)) * b,
        (4,),
    ),
    "amax": (
        lambda a, b, o: own.amax(a, (0, -1), order=o) * b,
        lambda a, b: torch.amax(a, (0, -1)) * b,
        (4,),
    ),
    "cumsum": (
        lambda a, b, o: own.cumsum(a, 1, order=prefixes(o)) * b,
        lambda a, b: torch.cumsum(a, 1) * b,
        SHAPE,
    ),
    "sum": (
        lambda a, b, o: own.sum(a, (0, -1), order=o) * b,
        lambda a, b: torch.sum(a, (0, -1)) * b,
        (4,),
    ),
    "segment_sum": (
        lambda a, b, o: own.segment_sum(a, offsets=torch.tensor([0, 0, 1, 2]), order=o) * b,
        lambda a, b: torch.stack([0 * a[0], a[0], a[1]]) * b,
        (3, 4, 3),
    ),
}
each = pytest.mark.parametrize("name", SAME)


@each
@pytest.mark.parametrize("order", ORDERS)
def test_results_and_gradients_are_those_of_torch_but_for_rounding(name, order):
    ours, torchs, shape = SAME[name]
    pairs = []
    for f in (lambda a, b: ours(a, b, order), torchs):
        a, b = numbers(*SHAPE), numbers(*shape, seed=2)
        out = f(a, b)
        (out * torch.arange(out.numel(), dtype=out.dtype).reshape(out.shape)).sum().backward()
        pairs.append((out.detach(), a.grad, b.grad))
    for mine, theirs in zip(*pairs, strict=True):
        assert mine.shape == theirs.shape
        torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-12)


@each
def test_derivatives_of_first_and_second_order_are_right(name):
    ours, _, shape = SAME[name]
    values = numbers(*SHAPE), numbers(*shape, seed=2)
    assert torch.autograd.gradcheck(lambda a, b: ours(a, b, "exact"), values)
    assert torch.autograd.gradgradcheck(lambda a, b: ours(a, b, "exact"), values)


@pytest.mark.parametrize("dtype", TYPES)
def test_neither_permutations_nor_threads_show_forward_or_backward(dtype):
    n, bins = 20_000, 50
    x, index, grad = numbers(n, 3, dtype=dtype), places(bins, n), numbers(n, 3, dtype=dtype, seed=3)
    results = set()
    threads = torch.get_num_threads()
    try:
        for k in (1, 2, 3):
            torch.set_num_threads(k)
            p = torch.randperm(n, generator=torch.Generator().manual_seed(k))
            table = numbers(bins, 3, dtype=dtype, seed=4)
            out = own.index_add(table.detach(), 0, index[p], x.detach()[p])
            own.embedding(index[p], table).backward(grad.detach()[p])
            results.add((bits(out), bits(table.grad)))
    finally:
        torch.set_num_threads(threads)
    assert len(results) == 1


def test_orders_of_arrival_show_forward_and_backward():
    n, bins = 2000, 5
    x, index = numbers(n, dtype=torch.float32, grad=False), places(bins, n)
    results = []
    for seed in range(5):
        table = torch.zeros(bins, requires_grad=True)
        out = own.index_add(table, 0, index, x, order=f"emulated:{seed}")
        own.index_select(table, 0, index, order=f"emulated:{seed}").backward(x)
        results.append((bits(out), bits(table.grad)))
    assert len({f for f, _ in results}) > 1 and len({b for _, b in results}) > 1
    again = own.index_add(table, 0, index, x, order="emulated:4")
    assert bits(again) == results[4][0]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_sorted_has_the_bits_of_torchs_index_add_on_one_thread(dtype):
    table, x, index = numbers(7, dtype=dtype, seed=1), numbers(999, dtype=dtype), places(7, 999)
    assert bits(own.index_add(table, 0, index, x, order="sorted")) == bits(table.index_add(0, index, x))


def test_the_input_counts_as_one_more_addition():
    """An input that is large among small numbers: added after their sum was rounded, it would round again."""
    table, x, index = numbers(7, seed=1, grad=False) * 1e3, numbers(999, grad=False), places(7, 999)
    expected = get("scatter_add", "exact")(
        np.concatenate([table, x]), np.concatenate([np.arange(7), index]), 7
    )
    assert own.index_add(table, 0, index, x).numpy().tobytes() == expected.tobytes()


@pytest.mark.parametrize("order", ORDERS)
def test_how_tensors_lie_in_memory_does_not_matter(order):
    if order == "atomic":
        pytest.skip("promises nothing")
    a, b = numbers(*SHAPE, grad=False), numbers(2, 6, 3, seed=2, grad=False)
    expected = bits(own.index_add(a, 1, INDEX, b, order=order))
    turned = a.permute(2, 0, 1).contiguous().permute(1, 2, 0)
    doubled = b.repeat_interleave(2, 1)[:, ::2]
    assert bits(own.index_add(turned, 1, INDEX.repeat_interleave(2)[::2], doubled, order=order)) == expected
    assert bits(own.index_add(a, 1, INDEX.int(), b, order=order)) == expected


@pytest.mark.parametrize("order", PROMISED)
def test_empty_tensors_and_numbers_are_no_exceptions(order):
    none = torch.zeros(0, dtype=torch.long)
    a = numbers(3, 2)
    assert torch.equal(own.index_add(a, 0, none, a[:0], order=order), a)
    assert own.index_add(a[:, :0], 0, INDEX % 3, torch.zeros(6, 0).double(), order=order).shape == (3, 0)
    assert own.index_select(a, 0, none, order=order).shape == (0, 2)
    assert own.sum(a[:0], 0, order=order).tolist() == [0, 0]
    assert own.sum(torch.tensor(2.5), order=order).item() == 2.5
    assert own.sum(a, order=order, keepdim=True).shape == (1, 1)
    one = own.index_add(torch.tensor(1.5), 0, torch.tensor([0, 0]), torch.tensor([1.0, 2.0]), order=order)
    assert one.shape == () and one.item() == 4.5
    own.index_select(a, 0, none, order=order).sum().backward()
    assert torch.equal(a.grad, torch.zeros(3, 2))


def test_a_padding_row_has_no_gradient():
    weight, index = numbers(5, 3), torch.tensor([[1, 0], [4, 1]])
    out = own.embedding(index, weight, padding_idx=1)
    assert torch.equal(out, torch.nn.functional.embedding(index, weight, padding_idx=1))
    out.sum().backward()
    assert weight.grad[:, 0].tolist() == [1, 0, 0, 0, 1]


@pytest.mark.parametrize(
    "name",
    [
        "index_add",
        "index_put broadcast",
        "sum",
        "mean",
        "amax",
        "cumsum",
        "embedding_bag mean",
        "embedding_bag max",
    ],
)
def test_a_compiled_function_has_the_same_bits(name):
    ours, _, shape = SAME[name]
    torch._dynamo.reset()
    compiled = torch.compile(lambda a, b: ours(a, b, "exact").sin(), fullgraph=True, backend="aot_eager")
    results = set()
    for f in (compiled, lambda a, b: ours(a, b, "exact").sin()):
        a, b = numbers(*SHAPE), numbers(*shape, seed=2)
        out = f(a, b)
        out.sum().backward()
        results.add((bits(out), bits(a.grad), bits(b.grad)))
    assert len(results) == 1


def test_torch_finds_nothing_wrong_with_the_operators():
    a, index = numbers(4, 2), INDEX
    for operator, arguments in (
        (torch.ops.fpna.add_rows, (a, index, numbers(6, 2), 4, "exact")),
        (torch.ops.fpna.add_rows, (None, index, numbers(6, 2), 4, "sorted")),
        (torch.ops.fpna.take_rows, (a, index, "sorted")),
        (torch.ops.fpna.within, (index, 4, True)),
        (torch.ops.fpna.segments, (torch.tensor([0, 2, 2, 5]), 5)),
        (torch.ops.fpna.prefix_sums, (a, "exact")),
        (torch.ops.fpna.bag_sums, (a, index, torch.tensor([0, 0, 2, 2, 1, 1]), 3, "exact")),
        (
            torch.ops.fpna.means,
            (a, index, torch.tensor([0, 0, 2, 2, 1, 1]), torch.tensor([2, 2, 2]), "exact"),
        ),
        (torch.ops.fpna.means, (a, None, torch.zeros(4, dtype=torch.int32), torch.tensor([4]), "sorted")),
        (torch.ops.fpna.shares, (a, index, torch.zeros(6).int(), torch.tensor([3, 1, 1, 1]), 5, "exact")),
        (torch.ops.fpna.product, (a, numbers(4, 2, seed=3))),
        (torch.ops.fpna.product, (numbers(2, 4).T, a)),
        (torch.ops.fpna.quotient, (numbers(2, 4).T, torch.tensor([1, 2, 3, 4]))),
        (torch.ops.fpna.quotient, (a, torch.tensor([1, 2, 3, 4]))),
        (torch.ops.fpna.most, (a, "sorted")),
        (torch.ops.fpna.equal, (a.detach(), a.detach()[0])),
        (torch.ops.fpna.converted, (a, torch.float32)),
    ):
        torch.library.opcheck(operator, arguments)


def test_what_is_out_of_range_is_named_with_its_place():
    a, bad = numbers(4), torch.tensor([0, 3, 4, 7])
    for call in (
        lambda: own.index_add(a, 0, bad, a),
        lambda: own.index_select(a, 0, bad),
        lambda: own.gather(a, 0, bad),
        lambda: own.scatter_add(a[:, None].expand(4, 2), 0, bad[:, None].repeat(1, 2)[:, :1], a[:, None]),
        lambda: own.embedding(bad, a[:, None]),
        lambda: own.embedding_bag(bad, a[:, None], bad[:1]),
        lambda: own.segment_sum(a, index=bad, bins=4),
    ):
        with pytest.raises(IndexError, match=r"index\[2\] is 4, but 4 bins allow 0 ... 3"):
            call()
    with pytest.raises(IndexError, match=r"index\[1\] is -1, .* do not count from the end"):
        own.index_add(a, 0, torch.tensor([0, -1]), a[:2])
    with pytest.raises(IndexError, match=r"index\[1\] is -5, but 4 bins allow -4 ... 3"):
        own.index_put(a, (torch.tensor([0, -5]),), a[:2])
    with pytest.raises(ValueError, match="offsets must ascend from 0 to the 4 rows"):
        own.segment_sum(a, offsets=torch.tensor([0, 3, 2, 4]))


def test_what_cannot_be_added_is_refused_with_what_is_expected():
    a, index = numbers(4), torch.tensor([0, 1])
    with pytest.raises(ChoiceError, match="exact, sorted"):
        own.index_add(a, 0, index, a[:2], order="fast")
    with pytest.raises(ValueError, match="`emulated:SEED` takes a seed"):
        own.index_add(a, 0, index, a[:2], order="sorted:1")
    with pytest.raises(TypeError, match=r"cannot add torch.int64: float64"):
        own.sum(torch.arange(3))
    with pytest.raises(TypeError, match=r"index of torch.bool; .* mask.nonzero"):
        own.index_add(a, 0, a > 0, a)
    with pytest.raises(IndexError, match=r"a mask of shape \(2,\) for dimensions of shape \(4,\)"):
        own.index_put(a, (a[:2] > 0,), a)
    with pytest.raises(ValueError, match=r"values of shape \(2, 2\) cannot be broadcast to \(2,\)"):
        own.index_put(a, (index,), numbers(2, 2))
    with pytest.raises(ChoiceError, match="order of cumsum 'atomic': choose one of exact, sorted"):
        own.cumsum(a, 0, order="atomic")
    with pytest.raises(IndexError, match=r"no elements along dim 0 of a tensor of shape \(0,\)"):
        own.amax(a[:0], 0)
    with pytest.raises(ChoiceError, match="mode of embedding_bag 'min': choose one of sum, mean, max"):
        own.embedding_bag(index, a[:, None], index[:1], mode="min")
    with pytest.raises(ValueError, match=r"and mode 'mean'; .* and mode 'sum' are expected"):
        own.embedding_bag(index, a[:, None], index[:1], per_sample_weights=a[:2])
    with pytest.raises(ValueError, match=r"shape \(2,\) and offsets None; \(bags, n\) and None, or"):
        own.embedding_bag(index, a[:, None])
    with pytest.raises(TypeError, match=r"torch.float32 on cpu cannot be added to torch.float64"):
        own.index_add(a, 0, index, a[:2].float())
    with pytest.raises(ValueError, match=r"source has shape \(3,\); \(2,\) is expected"):
        own.index_add(a, 0, index, a[:3])
    with pytest.raises(IndexError, match="dim 1 of a tensor of shape"):
        own.index_add(a, 1, index, a[:2])
    with pytest.raises(ValueError, match=r"use torch.index_put to write"):
        own.index_put(a, (index,), a[:2], accumulate=False)
    with pytest.raises(AttributeError, match=r"fpna.torch has no 'median'; it has amax, cumsum, embedding"):
        _ = own.median


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("order", PROMISED)
def test_a_device_has_the_bits_of_the_host(order, dtype):
    pytest.importorskip("cupy")
    results = []
    for device in ("cpu", "cuda"):
        table, x = (
            numbers(50, 3, dtype=dtype).detach().to(device),
            numbers(999, 3, dtype=dtype).detach().to(device),
        )
        index = places(50, 999).to(device)
        table.requires_grad_()
        out = own.index_add(table, 0, index, x, order=order)
        own.embedding(index, table, order=order).backward(x)
        mean, most = own.mean(x, 0, order=order), own.amax(x, 0, order=order)
        offsets = torch.tensor([0, 400, 400], device=device)
        for mode in ("sum", "mean", "max"):
            own.embedding_bag(index, table, offsets, mode=mode, order=order).backward(x[:3])
        results.append([bits(t.cpu()) for t in (out, table.grad, mean, most)])
        with pytest.raises(IndexError, match=r"index\[0\] is 50"):
            own.index_select(table, 0, index[:1] * 0 + 50, order=order)
    assert results[0] == results[1]


def bits(tensor):
    tensor = tensor.detach().contiguous()
    return (
        tensor.view({8: torch.int64, 4: torch.int32, 2: torch.int16}[tensor.element_size()]).numpy().tobytes()
    )


@pytest.mark.parametrize("first", range(0, 400, 100))
def test_drawn_calls_beside_torch_and_rational_numbers(first):
    from tests.kernels import drawn_alternatives

    found = [drawn_alternatives.case(3, number)[1] for number in range(first, first + 100)]
    assert [wrong for wrong in found if wrong] == []


CALLED = {
    "index_add": lambda f, x, y, i: f.index_add(x, 0, i, y),
    "index_select": lambda f, x, y, i: f.index_select(x, 0, i),
    "scatter_add": lambda f, x, y, i: f.scatter_add(x, 0, i.unsqueeze(1).expand(2, 3), y),
    "gather": lambda f, x, y, i: f.gather(x, 0, i.unsqueeze(1).expand(2, 3)),
    "index_put": lambda f, x, y, i: f.index_put(x, (i,), y, accumulate=True),
    "sum": lambda f, x, y, i: f.sum(x, 0),
    "mean": lambda f, x, y, i: f.mean(x, 0),
    "amax": lambda f, x, y, i: f.amax(x, 0),
    "cumsum": lambda f, x, y, i: f.cumsum(x, 0),
    "embedding": lambda f, x, y, i: _functional(f).embedding(i, x),
    "embedding_bag": lambda f, x, y, i: _functional(f).embedding_bag(i, x, i.new_zeros(1), mode="sum"),
    "embedding_bag with weights": lambda f, x, y, i: _functional(f).embedding_bag(
        i, x, i.new_zeros(1), mode="sum", per_sample_weights=y.new_ones(2)
    ),
}


def _functional(f):
    return torch.nn.functional if f is torch else f


@pytest.mark.parametrize("low", [None, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", CALLED)
def test_types_under_autocast_are_those_of_torch(name, low):
    for first, second in itertools.product(TYPES, TYPES):
        types = []
        for f in (own, torch):
            x, y = torch.ones(4, 3, dtype=first, requires_grad=True), torch.ones(2, 3, dtype=second)
            with torch.autocast("cpu", dtype=low, enabled=low is not None):
                try:
                    out = CALLED[name](f, x, y, torch.tensor([0, 1]))
                    out.sum().backward()
                    types.append((out.dtype, x.grad.dtype))
                except (TypeError, RuntimeError):
                    types.append("refused")
        assert types[0] == types[1], (first, second)


@pytest.mark.parametrize("low", [None, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", CALLED)
def test_types_under_autocast_of_a_device_are_those_of_torch(name, low):
    """torch computes types without a device: FakeTensorMode. It does not refuse several types where a device does."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    if torch.cuda.is_available():
        pytest.skip("the mode takes a real device's tensors otherwise")
    narrow = low or torch.float16
    for first, second in itertools.product({torch.float32, narrow}, {torch.float32, narrow}):
        types = []
        for f in (own, torch):
            with FakeTensorMode():
                x = torch.ones(4, 3, dtype=first, device="cuda")
                y = torch.ones(2, 3, dtype=second, device="cuda")
                index = torch.zeros(2, dtype=torch.int64, device="cuda")
                torch.set_autocast_enabled("cuda", low is not None)
                torch.set_autocast_dtype("cuda", narrow)
                try:
                    types.append(CALLED[name](f, x, y, index).dtype)
                except (TypeError, RuntimeError):
                    types.append("refused")
                finally:
                    torch.set_autocast_enabled("cuda", False)
        promoted = low is not None and name in ("index_put", "scatter_add")
        mixed = first != second and name in (
            "index_add",
            "index_put",
            "scatter_add",
            "embedding_bag with weights",
        )
        assert types[0] == (types[1] if promoted or not mixed else "refused"), (first, second)


def test_the_largest_element_in_all_ways():
    zeros = own.amax(torch.tensor([[0.0, -0.0], [-0.0, 0.0], [-0.0, -0.0]]), 1)
    assert torch.equal(torch.signbit(zeros), torch.zeros(3, dtype=torch.bool))
    for dtype in TYPES:
        x = torch.tensor([-2.0, 1.0, float("nan"), 1.0, -float("inf")], dtype=dtype)
        assert own.amax(x).isnan() and own.amax(x[:2]) == 1 and own.amax(x[4:]) == -float("inf")
        gradients = []
        for f in (own.amax, torch.amax):
            for part in (x, x[[0, 1, 3]]):
                part = part.clone().requires_grad_()
                f(part, 0).backward()
                gradients.append(part.grad)
        torch.testing.assert_close(gradients[0], gradients[2], equal_nan=True)
        assert torch.equal(gradients[1], gradients[3]) and gradients[1].tolist() == [0, 0.5, 0.5]


def test_equal_maxima_of_a_bag():
    """`sorted` gives the gradient to the first of them in the bag, as torch; `exact` whatever the order in the bag."""
    winners = {"exact": set(), "sorted": set(), "torch": set()}
    for index in ([2, 0, 1], [1, 0, 2], [1, 2, 0]):
        for order, seen in winners.items():
            weight = torch.tensor([[-1.0], [3.0], [3.0]], requires_grad=True)
            f = torch.nn.functional.embedding_bag
            if order != "torch":
                f = functools.partial(own.embedding_bag, order=order)
            f(torch.tensor(index), weight, torch.tensor([0]), mode="max").backward()
            seen.add(tuple(weight.grad[:, 0].tolist()))
    assert winners["exact"] == {(0, 1, 0)}
    assert winners["sorted"] == winners["torch"] == {(0, 1, 0), (0, 0, 1)}


def test_the_end_of_the_last_bag_may_lie_before_the_end():
    weight, index = torch.tensor([[1.0], [2.0], [4.0]], requires_grad=True), torch.tensor([0, 1, 2, 2])
    out = own.embedding_bag(index, weight, torch.tensor([0, 1, 3]), mode="sum", include_last_offset=True)
    assert out[:, 0].tolist() == [1, 6]
    out.sum().backward()
    assert weight.grad[:, 0].tolist() == [1, 1, 1]


@pytest.mark.parametrize("dtype", TYPES)
def test_neither_threads_nor_the_order_before_them_show_in_prefix_sums_and_bags(dtype):
    n = 3000
    x, index = numbers(n, 70, dtype=dtype, grad=False), places(200, n)
    results = set()
    threads = torch.get_num_threads()
    try:
        for k in (1, 2, 3):
            torch.set_num_threads(k)
            p = torch.cat(
                [torch.randperm(n - 1, generator=torch.Generator().manual_seed(k)), torch.tensor([n - 1])]
            )
            weight = x[:200].clone().requires_grad_()
            for mode in ("sum", "mean", "max"):
                own.embedding_bag(index[p], weight, torch.tensor([0, n - 1]), mode=mode).pow(
                    2
                ).sum().backward()
            results.add((bits(own.cumsum(x[p], 0)[-2:]), bits(own.mean(x[p], 0)), bits(weight.grad)))
    finally:
        torch.set_num_threads(threads)
    assert len(results) == 1


def test_prefix_sums_of_long_columns_and_of_all_sizes_of_numbers():
    """Integers of 128 bits, and a superaccumulator that has to carry; beside sums of each prefix."""
    draw = np.random.default_rng(5)
    exact = get("sum", "exact", "native")
    for low in (-20, -1000):
        x = draw.standard_normal(1500) * 2.0 ** draw.uniform(low, 20, 1500)
        x = np.concatenate([x, [np.inf, 1.0, -np.inf, 2.0]])
        expected = np.array([exact(x[: i + 1]) for i in range(len(x))])
        found = own.cumsum(torch.from_numpy(x), 0)
        assert found.numpy().tobytes() == expected.tobytes()
        by_place = own.cumsum(torch.from_numpy(x[:1500]), 0, order="sorted")
        assert by_place.numpy().tobytes() == np.cumsum(x[:1500]).tobytes()


def test_empty_tensors_and_paddings_are_those_of_torch():
    assert own.index_select(torch.zeros(3, 0), 0, torch.tensor([1])).shape == (1, 0)
    assert own.sum(torch.ones(2, 3), dim=()) == 6
    with pytest.raises(IndexError):
        own.sum(torch.tensor(1.0), dim=1)
    with pytest.raises(ValueError, match="padding_idx 5 is not one of the 5 rows"):
        own.embedding(torch.arange(5), torch.ones(5, 2), padding_idx=5)
    nothing = torch.zeros(4, dtype=torch.bool).nonzero(as_tuple=True)
    assert (own.index_put(torch.ones(4), nothing, torch.tensor(2.0)) == 1).all()
