"""Every rule against the unsharded operation: random shapes, cuts, owners."""

from dataclasses import replace

import pytest
import torch

from miniapps.partition import rules
from tests.miniapps.partition.cases import FIRST, case, gather, layer_norm, scan, slice_of, tril
from tests.miniapps.partition.oracle import check, drawn


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def require(seed: int) -> None:
    graph, plan, ranks = case(seed)
    check(plan, graph, drawn(graph, seed), ranks)


@pytest.mark.parametrize("family", range(len(FIRST)), ids=[function.__name__ for function in FIRST])
def test_what_ranks_make_is_the_unsharded_result(family):
    for seed in range(family, 12 * len(FIRST), len(FIRST)):
        require(seed)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(20))
def test_ten_thousand_random_cuts_are_right(part):
    for seed in range(500 * part, 500 * (part + 1)):
        require(seed)


@pytest.mark.parametrize(
    ("operation", "family"),
    [
        ("cumsum", scan),
        ("native_layer_norm", layer_norm),
        ("gather", gather),
        ("slice", slice_of),
        ("tril", tril),
    ],
)
def test_a_rule_that_cuts_what_must_be_whole_is_noticed(operation, family, monkeypatch):
    right = rules.RULES[operation]
    nothing = dict(whole=frozenset(), parted=frozenset())
    monkeypatch.setitem(rules.RULES, operation, lambda node, t: replace(right(node, t), **nothing))
    with pytest.raises((AssertionError, RuntimeError, IndexError)):
        for seed in range(FIRST.index(family), 20 * len(FIRST), len(FIRST)):
            require(seed)


def test_an_operation_without_a_rule_is_whole_and_its_name_is_the_reason():
    graph, _, _ = case(0)
    node = replace(graph.nodes[0], target="aten.unheard_of.default")
    tensors = [graph.tensors()[name] for name in node.operands()]
    rule = rules.rule(node, tensors)
    assert not rule.cuttable and rule.reason == "no rule for aten.unheard_of.default"
