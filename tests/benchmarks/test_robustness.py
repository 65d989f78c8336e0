"""A published study of classes that flip, redone: what follows from arithmetic alone."""

import argparse

import numpy as np
import pytest

from benchmarks.apps import robustness, robustness_layers
from benchmarks.apps.classifiers import of_classes
from benchmarks.apps.robustness import learnt, learnt_order, published


def figures(part):
    return {row["what"]: row["figure"] for row in part(argparse.Namespace(quiet=True))}


def test_outputs_of_their_classifier_are_a_few_last_places():
    found = figures(published)
    unit = found["distance of two float32 numbers near the smaller terms"]
    assert unit == 2.0**-28 and found["largest output of all orders"] == 2 * unit
    assert found["largest threshold with both classes"] == pytest.approx(2 * unit, abs=1e-12)
    assert found["perturbed inputs that differ from the input"] == "0 of 10"


def test_a_matrix_of_softmax_rows_learns_nothing_of_an_order():
    found = figures(learnt)
    assert found["largest gradient over largest term, float32"] < 1e-6
    assert found["largest gradient over largest term, float64"] < 1e-14
    assert found["entries of a learnt permutation that the assignment takes"].startswith("0 of")


def test_the_terms_of_a_class_are_its_products_and_its_bias():
    x, weights, biases = np.array([2.0, 3.0]), np.array([[1.0, 10.0], [4.0, 5.0]]), np.array([7.0, 8.0])
    assert of_classes(x, weights, biases).tolist() == [[2.0, 30.0, 7.0], [8.0, 15.0, 8.0]]


def test_an_input_near_its_boundary_is_flipped_by_a_worst_order_and_further_away_by_none(monkeypatch):
    monkeypatch.setattr(robustness, "MARGINS", np.array([1e-8, 1e-3]))
    rng = np.random.default_rng(1)
    x, weights, biases = (rng.normal(size=shape).astype(np.float32) for shape in (20, (3, 20), 3))
    found = robustness.flipped(x, weights, biases, 0)
    assert 0 < found["worst"] < 1e-4 and found["drawn"] < 1e-4


def test_their_permutation_moves_every_term_since_it_minimises_the_logits_of_the_identity():
    rng = np.random.default_rng(1)
    weights, biases = (rng.normal(size=shape).astype(np.float32) for shape in ((3, 12), 3))
    for seed in range(3):
        order = learnt_order(rng.normal(size=12).astype(np.float32), weights, biases, seed, seed)
        assert sorted(order) == list(range(12)) and not (order == np.arange(12)).any()


def test_two_layers_flip_near_the_boundary_and_not_beyond_the_bound(monkeypatch):
    monkeypatch.setattr(robustness_layers, "MARGINS", np.array([2e-8, 6e-8, 1e-3]))
    rng = np.random.default_rng(1)
    network = [
        tuple(rng.normal(size=shape).astype(np.float32) for shape in shapes)
        for shapes in (((6, 20), 6), ((3, 6), 3))
    ]
    images = rng.normal(size=(20, 20)).astype(np.float32)
    classes = [robustness_layers.logits(x, network)[0].argmax() for x in images]
    other = next(x for x, label in zip(images, classes, strict=True) if label != classes[0])
    found = robustness_layers.flipped_twice(images[0], other, network, 0)
    assert 0 < found["worst"] <= found["bound"] < 1e-3 and found["drawn"] <= found["worst"]
