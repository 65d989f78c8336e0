"""A published study of classes that flip, redone: what follows from arithmetic alone."""

import argparse

import numpy as np
import pytest

from benchmarks.apps.robustness import learnt, of_classes, published


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
    from benchmarks.apps import robustness

    monkeypatch.setattr(robustness, "MARGINS", np.array([1e-8, 1e-3]))
    rng = np.random.default_rng(1)
    x, weights, biases = (rng.normal(size=shape).astype(np.float32) for shape in (20, (3, 20), 3))
    found = robustness.flipped(x, weights, biases, 0)
    assert 0 < found["worst"] < 1e-4 and found["drawn"] < 1e-4
