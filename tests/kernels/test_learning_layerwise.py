"""A wire for each tensor: the dynamic programme against all choices, with ties and impossible limits."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.guarantees import ChoiceError
from kernels.learning.layerwise import choose, in_buckets

NAMES = ("float32", "fp8", "sign")


def all_choices(errors, nbytes):
    """(bytes, error, wires) of every choice."""
    for wires in itertools.product(range(errors.shape[1]), repeat=len(errors)):
        at = np.arange(len(errors)), np.array(wires, int)
        yield int(nbytes[at].sum()), float(errors[at].sum()), wires


@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 5),
    st.integers(1, 4),
    st.sampled_from((0.5, 1.0, 1.7)),
    st.booleans(),
)
def test_no_choice_has_fewer_bytes(seed, tensors, wires, alpha, squared):
    """Within one unit of error for each tensor, by which rounding makes the allowed sum smaller."""
    rng = np.random.default_rng(seed)
    errors, nbytes = rng.exponential(size=(tensors, wires)), rng.integers(0, 50, (tensors, wires))
    names = [f"w{k}" for k in range(wires)]
    weights = errors**2 if squared else errors
    allowed = alpha * weights[:, 0].sum()
    every = list(all_choices(weights, nbytes))
    fewest = min((b for b, error, _ in every if error <= allowed), default=None)
    surely = min((b for b, error, _ in every if error <= allowed * (1 - tensors / 10_000)), default=None)
    try:
        choice = choose(names, errors, nbytes, "w0", alpha, squared)
    except ChoiceError:
        assert surely is None and alpha < 1
        return
    assert choice.error <= choice.allowed * (1 + 1e-12) and choice.allowed == pytest.approx(allowed)
    assert fewest <= choice.nbytes and (surely is None or choice.nbytes <= surely)
    at = np.arange(tensors), [names.index(wire) for wire in choice.wires]
    assert choice.nbytes == nbytes[at].sum() and choice.error == pytest.approx(weights[at].sum())


@given(st.integers(0, 2**32 - 1), st.integers(1, 4))
def test_whole_errors_are_chosen_exactly_with_the_least_error_of_equal_bytes(seed, tensors):
    rng = np.random.default_rng(seed)
    errors, nbytes = rng.integers(0, 6, (tensors, 3)).astype(float), rng.integers(0, 4, (tensors, 3))
    errors[:, 0] = 3.0
    choice = choose(NAMES, errors, nbytes, "float32", buckets=3 * tensors)
    best = min((b, e) for b, e, _ in all_choices(errors, nbytes) if e <= 3 * tensors)
    assert (choice.nbytes, choice.error) == best


def test_the_reference_is_kept_where_nothing_is_cheaper():
    errors, nbytes = np.array([[0.1, 0.3], [0.7, 0.9], [1 / 3, 0.5]]), np.array([[4, 1], [4, 1], [4, 1]])
    assert choose(("fp8", "sign"), errors, nbytes, "fp8").wires == ("fp8",) * 3


def test_error_is_moved_to_where_bytes_are():
    """The large tensor takes the coarse wire, paid for by a fine one for the small tensor."""
    errors, nbytes = [[0.0, 1.0, 1.5], [0.0, 1.0, 4.0]], [[400, 100, 10], [40, 10, 1]]
    choice = choose(NAMES, errors, nbytes, "fp8")
    assert choice.wires == ("sign", "float32") and (choice.nbytes, choice.error) == (50, 1.5)
    assert choose(NAMES, errors, nbytes, "fp8", squared=True).wires == ("fp8", "fp8")


def test_equal_wires_are_chosen_by_their_order():
    errors, nbytes = np.ones((4, 3)), np.ones((4, 3), int)
    assert choose(NAMES, errors, nbytes, "sign").wires == ("float32",) * 4
    assert choose(NAMES[::-1], errors, nbytes, "sign").wires == ("sign",) * 4


def test_a_reference_without_loss_allows_none():
    errors, nbytes = [[0.0, 0.0, 0.1], [0.0, 1e-300, 0.1]], [[4, 3, 1], [4, 3, 1]]
    assert choose(NAMES, errors, nbytes, "float32").wires == ("fp8", "float32")


def test_no_tensors_and_one_bucket_are_no_error():
    assert choose(NAMES, np.empty((0, 3)), np.empty((0, 3), int), "fp8").wires == ()
    assert choose(NAMES, [[0.0, 1.0, 2.0]], [[4, 1, 0]], "fp8", buckets=1).wires == ("fp8",)


def test_rounding_never_lets_more_through():
    units = in_buckets(np.array([[0.1, 0.10001, 1.0, 5.0, 0.0]]), 1.0, 10)
    assert units.tolist() == [[1, 2, 10, 11, 0]]


@pytest.mark.parametrize("change, error, message", [
    ({"reference": "fp16"}, ChoiceError, "unknown reference 'fp16': choose one of float32, fp8, sign"),
    ({"alpha": 0.1}, ChoiceError, "choose a larger alpha"),
    ({"alpha": -1.0}, ValueError, "alpha -1.0 must be 0 or more"),
    ({"alpha": np.nan}, ValueError, "alpha nan"),
    ({"buckets": 0}, ValueError, "buckets 0"),
    ({"errors": [[1.0, np.nan, 1.0]]}, ValueError, "must be finite"),
    ({"errors": [[1.0, -1.0, 1.0]]}, ValueError, "0 or more"),
    ({"errors": [[1.0, 1.0]]}, ValueError, "3 wires"),
    ({"nbytes": [[1, -1, 1]]}, ValueError, "0 or more"),
])  # fmt: skip
def test_what_cannot_be_chosen_is_refused(change, error, message):
    asked = {"errors": [[1.0, 2.0, 3.0]], "nbytes": [[4, 2, 1]], "reference": "float32"} | change
    with pytest.raises(error, match=message):
        choose(NAMES, **asked)
