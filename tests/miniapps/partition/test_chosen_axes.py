"""Axes as they are chosen on a command line."""

import pytest

from kernels.guarantees import ChoiceError
from miniapps.partition import models
from miniapps.partition.recipes import chosen


def test_an_axis_is_named_once_and_order_makes_no_difference():
    model = models.model("gpt")
    names = [axis.name for axis in model.axes(model.Deck())][:2]
    assert chosen(model, model.Deck(), names) == chosen(model, model.Deck(), names[::-1])
    with pytest.raises(ChoiceError, match="is named 2 times"):
        chosen(model, model.Deck(), [names[0], *names])
