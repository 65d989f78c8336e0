"""Emulated links: their descriptions, and the time of messages."""

import json

import pytest

from kernels.allreduce import Reduction
from kernels.allreduce.emulation import in_place_of, links_of, seconds, traffic
from kernels.guarantees import ChoiceError


def of(label, n, size, counts=None, **axes):
    reduction = Reduction.named(label, n, "float32", **axes)
    return traffic(reduction, reduction.schedule(size), counts or [1] * size)


@pytest.mark.parametrize(
    ("label", "nbytes", "rounds"),
    [
        ("direct", 4, 2),
        ("ring", 4, 6),
        ("direct over fp8", 1, 2),
        ("direct in exact over fp8", 1, 2),
        ("ring over float16:hops=every", 2, 6),
    ],
)
def test_a_rank_sends_and_receives_three_quarters_of_the_vector_twice(label, nbytes, rounds):
    n, size = 4096 * 40, 4
    pairs, count = of(label, n, size)
    assert count == rounds
    links = links_of("rate=1e6,latency=0.5", size)
    assert seconds(links, size, pairs, count) == pytest.approx(2 * 3 / 4 * n * nbytes / 1e6 + 0.5 * rounds)


def test_contributions_that_are_encoded_one_by_one_take_their_number_of_bytes_until_their_sum_takes_fewer():
    n, size = 4096 * 400, 2
    half = n // 2

    def sent(label, count):
        return of(label, n, size, [count] * size)[0][0, 1]

    assert sent("direct in exact over fp8", 1) == half + half
    assert sent("direct in exact over fp8", 8) == 8 * half + half
    assert (
        sent("direct in exact over fp8", 9) == 8 * half + 4 * half
    )  # numbers that stand for the sum, and the total as it is
    assert sent("direct over fp8", 9) == half + half  # added first
    assert sent("direct in exact", 9) == 8 * half + 4 * half
    assert sent("direct in exact", 1) == 4 * half + 4 * half


def test_over_two_levels_contributions_travel_inside_groups_alone_however_many_they_are():
    n, size, blocks = 4096 * 64, 4, 16
    pairs, rounds = of("direct in exact over int8:inner=int8,group=32", n, size, [blocks] * size)
    assert rounds == 4
    inside, across = (
        sum(b for (q, r), b in pairs.items() if (q // 2 == r // 2) == near) for near in (True, False)
    )
    each = Reduction.named("direct over int8", n, "float32").total_bytes
    # Half of a group's sum goes to the other group, and half of the total comes from there.
    assert across == 2 * each
    # Of each contribution a half goes to the other rank, a quarter of the group's sum to its owner, half of the total.
    assert inside == size * (blocks / 2 + 1 / 4 + 1 / 2) * each


def test_ranks_of_a_node_share_its_link(tmp_path):
    file = tmp_path / "links.json"
    file.write_text(json.dumps({"rates": [[0, 1e6], [1e6, 0]], "of": "nodes"}))
    pairs, rounds = of("direct", 4096 * 40, 4)
    across = (
        2 * 2 * 2 * 4096 * 40
    )  # two ranks to two ranks, a quarter of the vector there and a quarter back, 4 bytes
    assert seconds(links_of(str(file), 4), 4, pairs, rounds) == pytest.approx(across * 4 / 4 / 1e6)
    assert seconds(links_of("rate=1e6", 1), 1, *of("direct", 100, 1)) == 0


def test_others_stand_for_what_has_no_schedule():
    for ordering, n, stand_in in (
        ("library", 10, "recursive-doubling"),
        ("library", 10_000, "rabenseifner"),
        ("arrival", 10_000, "linear"),
        ("ring", 10_000, "ring"),
    ):
        assert in_place_of(Reduction(ordering, n)).ordering == stand_in


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rate=0", "rate=BYTES_PER_SECOND"),
        ("rate=-1", "rate=BYTES_PER_SECOND"),
        ("rate=nan", "rate=BYTES_PER_SECOND"),
        ("rate=fast", "rate=BYTES_PER_SECOND"),
        ("rate=1e6,latency=-1", "rate=BYTES_PER_SECOND"),
        ("rate=1e6,speed=2", "rate=BYTES_PER_SECOND"),
        ("/nowhere/links.json", "cannot be read"),
    ],
)
def test_what_is_no_link_is_refused(text, message):
    with pytest.raises(ChoiceError, match=message):
        links_of(text, 2)


def test_links_of_others_are_refused(tmp_path):
    file = tmp_path / "links.json"
    file.write_text(json.dumps({"rates": [[0, 1e6], [1e6, 0]]}))
    with pytest.raises(ChoiceError, match="links of 2 ranks, and there are 3"):
        links_of(str(file), 3)
