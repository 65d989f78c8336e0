"""Random functions whose bits depend on known conditions: the audit finds these, and no others.

Arguments have drawn types, strides, offsets and shared storages, which every call must find; results are nested at
random among things that have no number.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from kernels.torchops.audit import Plan, audit  # noqa: E402
from kernels.torchops.calls import Nothing  # noqa: E402
from kernels.torchops.cases.operation import prepared  # noqa: E402
from kernels.torchops.pools import Pools  # noqa: E402
from kernels.torchops.verdicts import WHAT, in_words  # noqa: E402

PLAN = Plan(runs=2, threads=(1, 2, 3), batches=(1, 3), positions=3, offsets=(0, 4), timed=1)
TYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.complex64, torch.float8_e4m3fn,
         torch.int32, torch.bool)  # fmt: skip
ROWS = 6


@dataclass
class Holder:
    """A container of the user's own."""

    part: object
    rest: object = None


def drawn_argument(rng):
    """A tensor of ROWS rows of drawn type, strides and offset."""
    dtype = TYPES[rng.integers(len(TYPES))]
    base = torch.from_numpy(rng.uniform(0.5, 2.0, (2 * ROWS + 3, 14))).to(dtype)
    views = (
        lambda: base[:ROWS].clone(),
        lambda: base[3 : 3 + ROWS],
        lambda: base[1::2][:ROWS],
        lambda: base.t()[:ROWS, :5],
        lambda: base[:ROWS, :1].expand(ROWS, 4),
        lambda: base[0].expand(ROWS, 14),
        lambda: base[:ROWS, :12].reshape(ROWS, 1, 3, 4).contiguous(memory_format=torch.channels_last),
    )
    if dtype == torch.float8_e4m3fn:  # torch copies it in few ways
        return base[3 : 3 + ROWS]
    return views[rng.integers(len(views))]()


def as_given(x):
    return (x.dtype, x.stride(), x.storage_offset(), x.untyped_storage().nbytes(), x.shape[1:])


def libraries():
    """The threads of the first pool beside torch's."""
    return Pools().all[1].get() if len(Pools().all) > 1 else torch.get_num_threads()


def parts(rng):
    """{change: part of a result that depends on it, of the arguments}, none of them on another."""
    calls = count()

    def among_threads(x):
        with ThreadPoolExecutor(2) as pool:
            return sum(pool.map(lambda k: float(next(calls)), range(2)))

    flag = 2.0**-20
    every = {
        "torch": lambda x: 1.0 + flag * (torch.get_num_threads() == 2),
        "library": lambda x: np.float32(1.0 + flag * (libraries() == 2)),
        "state": lambda x: torch.ones(ROWS) * next(calls),
        "own threads": among_threads,
        "address": lambda x: int(x.untyped_storage().data_ptr() % 64 == 4),
        "batch": lambda x: torch.ones(len(x), 2) + flag * (len(x) == 3),
        "position": lambda x: torch.arange(len(x)) * 1.0,
    }
    return {name: every[name] for name in every if rng.random() < 0.2}


EXPECTED = {"torch": "threads", "library": "threads", "state": "runs", "own threads": "runs", "address": "address",
            "batch": "batch", "position": "position"}  # fmt: skip


def nested(rng, leaves):
    """The leaves in containers, among things that have no number."""
    things = [*leaves, *([None], [object(), {"a": None}], [])[rng.integers(3)]]
    rng.shuffle(things)
    kind = rng.integers(5)
    if kind == 0:
        return {f"key {n}": thing for n, thing in enumerate(things)}
    if kind == 1:
        return tuple(things)
    if kind == 2:
        return Holder(things[0] if things else None, [things[1:]])
    if kind == 3:
        return [things[:1], {"rest": things[1:]}, SimpleNamespace(x=1)]
    return {"loss": things, 3: Holder(None)}


def judged(seed):
    """(what a drawn function depends on, what the audit says, its record, its words)."""
    rng = np.random.default_rng(seed)
    arguments = [drawn_argument(rng) for _ in range(rng.integers(1, 3))]
    if rng.random() < 0.3:
        arguments.append(arguments[0][:, ...])  # shares the storage
    known = [as_given(x) for x in arguments]
    depends = parts(rng)
    layout = int(rng.integers(2**31))

    def call(*given):
        wrong = [(as_given(x), k) for x, k in zip(given, known, strict=True) if as_given(x) != k]
        assert not wrong, f"not as given: {wrong}"
        pure = torch.full((len(given[0]),), 0.5)
        leaves = [pure, *(part(given[0]) for part in depends.values())]
        return nested(np.random.default_rng(layout), leaves)

    batch = tuple(range(len(arguments)))
    record = audit(prepared(call, *arguments, batch=batch), "forward", "drawn", seed, PLAN)
    expected = {EXPECTED[name] for name in depends}
    seen = {change for change in WHAT if (record.get(change) or {"distinct": 1})["distinct"] > 1}
    words = in_words({"name": "f", "audit": record, "outcome": "done", "effects": {}})
    return depends, expected, seen, record, words


def check(seed):
    depends, expected, seen, record, words = judged(seed)
    if "runs" in expected:
        assert "runs" in seen and record["runs"]["by"]["1"] > 1, seed
        [line] = [each for each in words if "from run to run" in each]
        assert "the cause is not the number of these threads" in line, seed
        assert not [each for each in words if each.startswith("f: no difference")], seed
        if "own threads" in depends:
            assert record["elsewhere"]["seconds"] > 0, seed
            assert any("not varied" in each and "outside these pools" in each for each in words), seed
    else:
        assert seen == expected, (seed, depends)
        alone = record["threads"].get("alone") or {}
        if alone and {"torch", "library"} & set(depends):
            assert (alone["torch"] > 1) == ("torch" in depends), seed
    assert not record["not_tried"], (seed, record["not_tried"])


@pytest.mark.parametrize("seed", range(6))
def test_a_drawn_function_is_judged_as_it_is(seed):
    check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(10))
def test_many_drawn_functions_are_judged_as_they_are(block):
    for seed in range(100 + 20 * block, 120 + 20 * block):
        check(seed)


@pytest.mark.parametrize("given", [None, [], {"a": None}, (object(), iter(())), torch.empty(0)])
def test_of_what_holds_no_number_nothing_is_said_but_that(given):
    with pytest.raises(Nothing):
        audit(prepared(lambda x: given, np.ones(3, np.float32)), "forward", "none", 1, PLAN)


def test_a_result_that_contains_itself_ends():
    ring = [1.0]
    ring.append({"again": ring})
    record = audit(prepared(lambda x: ring, np.ones(3, np.float32)), "forward", "ring", 1, PLAN)
    assert record["elements"] == 1 and "it contains itself" in record["skipped"]["result[1]['again']"]


def test_results_without_a_gradient_are_not_compared_backward():
    case = prepared(lambda x: {"loss": x.detach().sum(), "n": 3}, np.ones(3, np.float32), differentiate=(0,))
    with pytest.raises(Nothing, match="no result needs a gradient"):
        audit(case, "backward", "none", 1, PLAN)
