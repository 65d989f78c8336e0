"""The mixture of experts against GShard's algorithm 1, written plainly, token by token."""

from math import ceil

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from kernels.guarantees import ChoiceError  # noqa: E402
from miniapps.partition.models import Task, model  # noqa: E402
from miniapps.partition.models.moe import Options, routed  # noqa: E402
from miniapps.partition.planning.recipes import deck_of  # noqa: E402


def algorithm_1(gates, capacity, drawn):
    """Lepikhin et al. 2020, arXiv 2006.16668, algorithm 1, for one group: gates (S, E) after the softmax. Returns
    (combine weights (S, E, C), l_aux, tokens dropped of first and of second choices, second choices not sent)."""
    tokens, experts = gates.shape
    combine = np.zeros((tokens, experts, capacity))
    counts = np.zeros(experts, int)  # c_E: decisions for each expert
    mean = gates.mean(0)  # m_E
    dropped, late, skipped = 0, 0, 0

    def top_2(s):
        e1 = int(np.argmax(gates[s]))
        e2 = max((e for e in range(experts) if e != e1), key=lambda e: (gates[s, e], -e))
        return gates[s, e1], e1, gates[s, e2], e2

    for s in range(tokens):
        g1, e1, g2, _ = top_2(s)
        c = counts[e1]
        if c < capacity:
            combine[s, e1, c] = g1 / (g1 + g2)
        else:
            dropped += 1
        counts[e1] = c + 1
    auxiliary = (counts / tokens * mean).mean()
    for s in range(tokens):
        g1, _, g2, e2 = top_2(s)
        g2 = g2 / (g1 + g2)
        c = counts[e2]
        if c < capacity and (drawn is None or 2 * g2 > drawn[s]):
            combine[s, e2, c] = g2
        elif c < capacity:
            skipped += 1
        else:
            late += 1
        counts[e2] = c + 1
    return combine, auxiliary, dropped, late, skipped


@pytest.mark.parametrize("capacity", [1, 3, 5, 40])
@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("at_random", [False, True])
def test_routing_is_algorithm_1(capacity, ties, at_random):
    rng = np.random.default_rng(capacity)
    logits = rng.standard_normal((6, 20, 4))
    logits = np.round(logits) if ties else logits
    gates = torch.softmax(torch.from_numpy(logits), -1)
    drawn = rng.random((6, 20)) if at_random else None
    found = routed(gates, capacity, None if drawn is None else torch.from_numpy(drawn))
    true = [algorithm_1(gates[g].numpy(), capacity, None if drawn is None else drawn[g]) for g in range(6)]
    np.testing.assert_allclose(found.combine.numpy(), [each[0] for each in true], rtol=1e-14, atol=0)
    assert float(found.balance) == pytest.approx(np.mean([each[1] for each in true]), rel=1e-13)
    counted = [int(found.dropped_first), int(found.dropped_second), int(found.skipped_second)]
    assert counted == [sum(each[k] for each in true) for k in (2, 3, 4)]
    assert (counted[0] > 0) == (capacity < 40)  # so that each case is there
    assert ties or (counted[2] > 0) == (at_random and capacity > 1)


def test_gates_of_zero_still_name_two_experts():
    gates = torch.tensor([[[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]])
    combine = routed(gates, 4).combine
    assert combine[0, :, 1].sum(-1).tolist() == [1.0, 0.0] and combine[0, :, 0].sum(-1).tolist() == [0.0, 1.0]


def test_a_balanced_routing_has_the_smallest_loss():
    even, uneven = torch.eye(4).repeat(1, 5, 1), torch.eye(4)[[0] * 20].unsqueeze(0)
    assert float(routed(even, 20).balance) == pytest.approx(1 / 16)  # sum of (1/4)^2, over 4
    assert float(routed(uneven, 20).balance) == pytest.approx(1 / 4)


def test_the_capacity_factor_gives_the_places_of_an_expert():
    moe = model("moe")
    task = Task(batch=32, micro=8, edge=4, classes=10, vocabulary=2)
    for factor in (0.1, 1.0, 1.3, 2.0):
        assert moe.sized(Options(capacity=factor), task).capacity == ceil(factor * 2 * 8 / 4)


def test_a_negative_balance_is_refused():
    with pytest.raises(ChoiceError, match="balance"):
        deck_of(model("moe"), {"balance": "-1"})
