"""Static schedules: bits that depend on weights and sample alone, and are those of the definition in NumPy."""

from __future__ import annotations

import json
import threading
from functools import cache
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels import _native
from kernels.guarantees import ChoiceError
from kernels.inference.graph import Node, Unsupported
from kernels.inference.lower import plan
from kernels.inference.reference import evaluate
from kernels.inference.schedule import FLOPS_PER_BYTE, LEVELS
from kernels.inference.static import Static
from miniapps.untrusted.schedule import read_schedule

from .inference_cases import closure, cnn, convolution, graph, hard, mlp, normal, same, window

NETWORKS = {"mlp": mlp, "cnn": cnn, "closure": closure}
BATCHES = (1, 2, 3, 7, 16, 64)


@cache
def made(name: str):
    """(graph, schedule, 64 samples, their results) of a network."""
    of = NETWORKS[name]()
    schedule = plan(of)
    x = normal(64, *of.sample)
    return of, schedule, x, Static(schedule)(x)


def at_offset(x: np.ndarray, offset: int) -> np.ndarray:
    """A copy that begins `offset` bytes after a multiple of 64."""
    memory = np.empty(x.nbytes + 128, np.uint8)
    begin = -memory.ctypes.data % 64 + offset
    out = memory[begin : begin + x.nbytes].view(x.dtype).reshape(x.shape)
    out[...] = x
    return out


# ---- what the bits depend on


@pytest.mark.parametrize("name", NETWORKS)
def test_bits_are_those_of_the_definition(name):
    of, _, x, y = made(name)
    assert same(y[:3], evaluate(of, x[:3]))


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("level", LEVELS)
def test_bits_do_not_depend_on_the_width_of_vectors(name, level):
    _, schedule, x, y = made(name)
    assert same(Static(schedule, level=level)(x[:17]), y[:17])


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("threads", [1, 2, 3, 4])
def test_bits_depend_on_neither_batch_nor_place_nor_threads_nor_address(name, threads):
    _, schedule, x, y = made(name)
    network = Static(schedule, threads)
    for batch, offset in zip(BATCHES, (0, 4, 16, 32, 4, 0), strict=True):
        for first in {0, 1, 64 - batch} if batch < 64 else {0}:
            part = at_offset(x[first : first + batch], offset)
            assert same(network(part), y[first : first + batch]), (batch, first, offset)
    places = np.random.default_rng(threads).permutation(64)
    assert same(network(x[places]), y[places])


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("tile", [1, 5, 64])
def test_bits_do_not_depend_on_the_tile(name, tile):
    of, _, x, y = made(name)
    assert same(Static(plan(of, tile))(x[:9]), y[:9])


@pytest.mark.parametrize("threads", [2, 3, 4])
def test_bits_do_not_depend_on_the_threads_that_share_a_sample(threads):
    rows = graph((300, 64), ("linear", (300, 72), {"weight": "w"}), batched=False, w=normal(72, 64))
    pixels = graph(
        (8, 40, 37), ("conv2d", (16, 40, 37), {"weight": "w"}, convolution(1)), w=normal(16, 8, 3, 3)
    )
    for of, x in ((rows, normal(300, 64)), (pixels, normal(1, 8, 40, 37))):
        assert same(Static(plan(of), threads)(x), evaluate(of, x))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_ten_thousand_requests_have_the_same_bits(name):
    """Power: a chance of 3e-4 that a request differs would show with a probability of 95 %."""
    _, schedule, x, y = made(name)
    rng = np.random.default_rng(7)
    alone = [Static(schedule, 1, level) for level in LEVELS]
    sharing = [Static(schedule, threads, level) for threads in (2, 3, 4) for level in LEVELS]
    for _ in range(10_000):
        places = rng.integers(0, 64, rng.integers(1, 12))
        networks = sharing if rng.random() < 0.05 else alone  # threads wait long for busy cores
        network = networks[rng.integers(len(networks))]
        assert same(network(at_offset(x[places], 4 * int(rng.integers(16)))), y[places])


def test_calls_at_the_same_time_have_the_same_bits():
    _, schedule, x, y = made("cnn")
    network, wrong = Static(schedule), []

    def calls():
        wrong.extend(k for k in range(30) if not same(network(x[:5]), y[:5]))

    callers = [threading.Thread(target=calls) for _ in range(3)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not wrong


def test_networks_differ_where_a_weight_does():
    """So that the comparisons above can fail."""
    of, _, x, y = made("mlp")
    changed = mlp()
    changed.constants["w2"] = np.nextafter(of.constants["w2"], np.float32(9))
    assert not same(Static(plan(changed))(x), y)


# ---- every operation against its definition

SMALL = st.integers(1, 5)


@given(
    channels=SMALL, to=st.integers(1, 41), edge=st.integers(1, 18), kernel=st.integers(1, 3), padding=st.integers(0, 2),
    stride=st.integers(1, 3), dilation=st.integers(1, 2), relu=st.booleans(), seed=st.integers(0, 99),
)  # fmt: skip
def test_convolutions_are_those_of_the_definition(
    channels, to, edge, kernel, padding, stride, dilation, relu, seed
):
    reach = dilation * (kernel - 1) + 1
    edge = max(edge, reach - 2 * padding, 1)
    out = (edge + 2 * padding - reach) // stride + 1
    steps = [("conv2d", (to, out, out), {"weight": "w"}, convolution(padding, stride, dilation))]
    steps += [("relu", (to, out, out))] * relu
    of = graph((channels, edge, edge), *steps, w=normal(to, channels, kernel, kernel, seed=seed))
    x = normal(2, channels, edge, edge, seed=seed)
    assert all(same(Static(plan(of), level=level)(x), evaluate(of, x)) for level in LEVELS)


@given(inner=st.integers(1, 70), outer=st.integers(1, 100), rows=st.integers(1, 20), batch=st.integers(0, 20))
def test_linear_layers_are_those_of_the_definition(inner, outer, rows, batch):
    constants = {"w": normal(outer, inner), "b": normal(outer)}
    for shape in ((inner,), (rows, inner)):
        of = graph(shape, ("linear", (*shape[:-1], outer), {"weight": "w", "bias": "b"}), **constants)
        x = normal(batch, *shape)
        assert all(same(Static(plan(of), level=level)(x), evaluate(of, x)) for level in LEVELS)


SHAPES = [(5,), (3, 33), (2, 5, 7), (3, 1), (1,), ()]
ONE_OPERAND = ["relu", "exp", "tanh", "sigmoid", "log", "sqrt", "neg"]
TWO_OPERANDS = ["add", "sub", "rsub", "mul", "div", "rdiv", "maximum"]


@pytest.mark.parametrize("operation", ONE_OPERAND)
def test_functions_are_those_of_the_definition(operation):
    for shape in SHAPES:
        of, x = graph(shape, (operation, shape)), hard((9, *shape))
        assert all(same(Static(plan(of), level=level)(x), evaluate(of, x)) for level in LEVELS)


@pytest.mark.parametrize("operation", TWO_OPERANDS)
def test_pairs_are_those_of_the_definition(operation):
    for shape in SHAPES:
        x = hard((9, *shape))
        others = {"scalar": np.float32(0.3), "full": normal(*shape)}
        if shape:
            others["last"] = normal(shape[-1])
            others["column"] = normal(*shape[:-1], 1)
        for other in others.values():
            of = graph(shape, (operation, shape, {"other": "c"}), c=other)
            assert all(same(Static(plan(of), level=level)(x), evaluate(of, x)) for level in LEVELS)
        both = Node("y", operation, ("x", "neg0"), shape)
        of = graph(shape, ("neg", shape), both)
        assert same(Static(plan(of))(x), evaluate(of, x))
    column = graph((4, 9), ("max", (4, 1)), Node("y", operation, ("x", "max0"), (4, 9)))
    turned = graph((4, 9), ("max", (4, 1)), Node("y", operation, ("max0", "x"), (4, 9)))
    x = hard((9, 4, 9))
    assert all(same(Static(plan(of))(x), evaluate(of, x)) for of in (column, turned))


@pytest.mark.parametrize("operation", ["sum", "mean", "norm", "max"])
def test_reductions_are_those_of_the_definition(operation):
    for shape in [(5,), (3, 33), (2, 5, 7), (1,)]:
        of, x = graph(shape, (operation, (*shape[:-1], 1))), hard((9, *shape))
        assert same(Static(plan(of))(x), evaluate(of, x))


@pytest.mark.parametrize("operation", ["max_pool2d", "avg_pool2d"])
@pytest.mark.parametrize("size, step", [(2, 2), (3, 1), (2, 3)])
def test_pooling_is_that_of_the_definition(operation, size, step):
    for channels, edge in ((1, 7), (9, 8)):
        out = (edge - size) // step + 1
        of = graph((channels, edge, edge), (operation, (channels, out, out), {}, window(size, step)))
        x = hard((3, channels, edge, edge))
        assert same(Static(plan(of))(x), evaluate(of, x))


def test_rows_are_gathered_added_and_joined_as_the_definition_says():
    index, edges = np.array([3, 0, 3, 2, 5]), np.array([0, 1, 0, 0, 3])
    steps = [
        ("gather", (5, 7), {"index": "from"}),
        ("index_add", (4, 7), {"index": "to", "start": "start"}),
        ("linear", (4, 12), {"weight": "w"}),
        Node("joined", "concat", ("linear2", "index_add1"), (4, 19), {}, {"axis": 1}),
        Node("twice", "concat", ("joined", "joined"), (8, 19), {}, {"axis": 0}),
    ]
    constants = {"from": index, "to": edges, "start": normal(4, 7), "w": normal(12, 7)}
    of = graph((6, 7), *steps, batched=False, **constants)
    x = normal(6, 7)
    y = Static(plan(of), threads=2)(x)
    assert y.shape == (8, 19)
    assert same(y, evaluate(of, x))


@pytest.mark.parametrize("name", NETWORKS)
def test_nan_infinities_zeros_and_subnormals_are_those_of_the_definition(name):
    of, schedule, *_ = made(name)
    x = hard((4, *of.sample), seed=3)
    x[0] = np.where(np.isfinite(x[0]), x[0], -0.0)  # a sample without NaN and infinities
    x[1] = normal(*of.sample) * np.float32(1e-41)  # subnormals alone
    y = evaluate(of, x)
    assert np.isnan(y).any() and np.isfinite(y).any()
    assert all(same(Static(schedule, level=level)(x), y) for level in LEVELS)


def test_hard_weights_are_those_of_the_definition():
    for draw in (lambda *shape: hard(shape), lambda *shape: normal(*shape) * np.float32(1e-22)):
        of = mlp((56, 40, 9), draw)
        x = normal(6, 28, 2) * np.float32(1e-20)
        assert same(Static(plan(of))(x), evaluate(of, x))


# ---- what is refused


def test_wrong_arrays_are_refused():
    network = Static(made("mlp")[1])
    with pytest.raises(TypeError, match="float64: convert it to a NumPy array of float32"):
        network(np.zeros((1, 28, 28)))
    with pytest.raises(ValueError, match=r"\(1, 28\): expected \(batch, 28, 28\)"):
        network(np.zeros((1, 28), np.float32))
    assert network(np.zeros((0, 28, 28), np.float32)).shape == (0, 10)


def test_unknown_instruction_sets_are_refused():
    with pytest.raises(ChoiceError, match="this processor has"):
        Static(made("mlp")[1], level="x86-64-v9")


def test_broadcasts_that_have_no_kernel_are_refused_with_their_line():
    of = graph((4, 9), ("max", (4, 1)), Node("y", "add", ("x", "g"), (4, 9), {}, {}, "model.py:3: x + g"))
    of.nodes.insert(0, Node("g", "reshape", ("x",), (36,)))
    with pytest.raises(Unsupported, match=r"add \(node 'y', model.py:3: x \+ g\): .* only equal shapes"):
        plan(of)
    of = graph((6, 7), ("gather", (1, 7), {"index": "i"}), batched=False, i=np.array([6]))
    with pytest.raises(Unsupported, match=r"the index reaches from 6 to 6, beyond 0 \.\.\. 5"):
        plan(of)


@pytest.mark.parametrize("word", range(32))
def test_programs_that_reach_outside_are_refused(word):
    """Every word of every operation is either checked or harmless: nothing crashes."""
    _, schedule, x, _ = made("cnn")
    arguments = (schedule.constants, schedule.tables, 784, 10, schedule.arena, schedule.tile)
    for row in range(len(schedule.kernels)):
        for value in (-1, 10**7, 2**62):
            program = schedule.program()
            program[row, word] = value
            try:
                changed = _native.StaticProgram(program, *arguments)
            except ValueError as error:
                assert f"operation {row}: " in str(error)
            else:
                changed.run(x[:17], np.empty((17, 10), np.float32), np.empty(schedule.arena, np.float32), 1)


# ---- the printed schedule


def test_buffers_begin_at_lines_of_the_cache_and_do_not_overlap_while_needed():
    for name in NETWORKS:
        schedule = made(name)[1]
        assert all(buffer.at % 16 == 0 for buffer in schedule.buffers)
        for kernel in schedule.kernels:
            to = kernel.output
            for source in kernel.inputs:
                if source.space == to.space == "arena":
                    first, second = sorted((source, to), key=lambda b: b.at)
                    assert first.at + first.size * (schedule.tile if first.step else 1) <= second.at


def test_costs_are_those_of_the_network():
    cost = made("cnn")[1].cost()
    products = 2 * (784 * 8 * 25 + 196 * 16 * 8 * 25 + 784 * 64 + 64 * 10)
    pooling = 4 * (196 * 8 + 49 * 16)
    assert cost["flops"] == products + pooling
    assert cost["weights"] == 4 * 54_314
    assert (cost["bytes_in"], cost["bytes_out"]) == (4 * 784, 40)


def test_the_price_of_a_kernel_is_the_longer_of_its_operations_and_its_bytes():
    kernels = {kernel.text: kernel for kernel in made("cnn")[1].kernels}
    assert kernels["pad"].price(16) == 16 * kernels["pad"].bytes()
    second = kernels["conv 8 to 16, 5 x 5 relu"]
    assert second.price(16) == 16 * second.flops / FLOPS_PER_BYTE
    linear = kernels["linear 784 to 64 relu"]
    assert linear.price(1) == linear.bytes() + linear.weights, "weights are read once for a tile"
    assert linear.price(16) == 16 * linear.flops / FLOPS_PER_BYTE


@pytest.mark.parametrize("name", NETWORKS)
def test_buffers_that_are_kept_at_once_do_not_share_memory(name, tmp_path):
    """As the document says, from which the picture is drawn; buffers that are not kept at once do share it."""
    (tmp_path / "schedule.json").write_text(json.dumps(made(name)[1].as_json()))
    drawn = read_schedule(tmp_path / "schedule.json")
    assert sum(kernel.share for kernel in drawn.kernels) == pytest.approx(1.0)
    shared = 0
    for one, other in combinations(drawn.buffers, 2):
        at_once = one.first <= other.last and other.first <= one.last
        apart = any(
            first.offset + first.bytes * first.samples <= second.offset
            for first, second in ((one, other), (other, one))
        )
        assert apart or not at_once
        shared += not apart
    assert shared


def test_a_schedule_is_a_table_and_a_document():
    schedule = made("cnn")[1]
    text, document = schedule.describe(), schedule.as_json()
    assert "conv 8 to 16, 5 x 5 relu" in text
    assert "k = (channel, row, column), ascending, from the bias" in text
    assert [k["kernel"] for k in document["kernels"]] == [k.text for k in schedule.kernels]
    assert document["cost"] == schedule.cost()
