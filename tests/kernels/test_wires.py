"""Wires: what is decoded is what was encoded, whatever the integers, and damaged bytes are refused or decoded, never
believed beyond their end."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels import wires
from kernels.guarantees import ChoiceError

PACKED = wires.get("packed", np.dtype(np.int64))
LEAST, MOST = -(2**63), 2**63 - 1


def over(words: np.ndarray, width: int) -> tuple[np.ndarray, int]:
    """The words after the wire, and the bytes that travelled."""
    buffer = np.full(PACKED.most(len(words) // width, width), 0xA5, np.uint8)
    used = PACKED.encode(words, width, buffer)
    travelled = np.full(len(buffer), 0x5A, np.uint8)  # what lies behind a message is undefined
    travelled[:used] = buffer[:used]
    back = np.full_like(words, 0x77)
    PACKED.decode(travelled, width, back)
    return back, used


@given(
    n=st.integers(0, 200),
    width=st.sampled_from([1, 2, 3, 70]),
    bits=st.integers(0, 64),
    zeros=st.integers(0, 63),
    seed=st.integers(0, 2**32),
)
def test_any_integers_come_back(n, width, bits, zeros, seed):
    raw = np.random.default_rng(seed).integers(LEAST, MOST, n * width, endpoint=True)
    words = (raw >> min(64 - bits, 63) << zeros) * (bits > 0)
    back, used = over(words, width)
    assert back.tobytes() == words.tobytes()
    assert used <= PACKED.most(n, width)


@pytest.mark.parametrize(
    "special", [[LEAST], [MOST], [LEAST, MOST], [-1], [0], [0, -1], [1 << 62], [LEAST, 0, -4]]
)
@pytest.mark.parametrize("n", [1, 63, 64, 65, 130])
def test_the_ends_of_the_range_come_back(special, n):
    words = np.resize(np.array(special, np.int64), n)
    assert over(words, 1)[0].tobytes() == words.tobytes()


def test_a_group_takes_the_bits_that_its_words_need():
    words = np.arange(-32, 32, dtype=np.int64) << 20  # 6 bits, sign included
    assert over(words, 1)[1] == 2 + 64 * 6 // 8
    assert over(np.zeros(6400, np.int64), 1)[1] == 2 * 100
    apart = np.stack([words, np.zeros_like(words)], axis=1).reshape(-1)
    assert over(apart, 2)[1] == 2 + 64 * 6 // 8 + 2


@given(data=st.binary(min_size=8, max_size=400), n=st.integers(0, 100), width=st.sampled_from([1, 2, 70]))
def test_foreign_bytes_are_refused_or_decoded(data, n, width):
    words = np.zeros(n * width, np.int64)
    try:
        PACKED.decode(np.frombuffer(data, np.uint8), width, words)
    except ValueError as error:
        assert "not packed words" in str(error)


def test_what_does_not_fit_is_refused():
    words = np.zeros(10, np.int64)
    with pytest.raises(ValueError, match="too short"):
        PACKED.encode(words, 1, np.zeros(20, np.uint8))
    with pytest.raises(ValueError, match="whole number of elements"):
        PACKED.encode(words, 3, np.zeros(200, np.uint8))
    with pytest.raises(ChoiceError, match=r"wire.*'morse'.*as is, packed"):
        wires.get("morse", np.dtype(np.int64))
    with pytest.raises(ChoiceError, match=r"packs words of 64 bits.*float32"):
        wires.get("packed", np.dtype(np.float32))
    assert wires.get("as is", np.dtype(np.float32)) is None
