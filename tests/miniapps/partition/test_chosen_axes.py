"""Axes as they are chosen on a command line."""

import pytest

from jobs import applications
from kernels.guarantees import ChoiceError
from miniapps.partition import models
from miniapps.partition.planning.recipes import chosen


def test_an_axis_is_named_once_and_order_makes_no_difference():
    model = models.model("gpt")
    names = [axis.name for axis in model.axes(model.Deck())][:2]
    assert chosen(model, model.Deck(), names) == chosen(model, model.Deck(), names[::-1])
    with pytest.raises(ChoiceError, match="given 2 times"):
        chosen(model, model.Deck(), [names[0], *names])


def test_a_command_line_says_so_too_and_its_hash_is_one():
    said = "--model gpt --data text --mesh data=1 --steps 1 --batch 8 --set training.micro=4 --axes"
    targets = {
        applications.target("mesh", [*said.split(), axes], 1) for axes in ("batch,heads", "heads,batch")
    }
    assert len(targets) == 1
    assert applications.target("mesh", [*said.split(), "batch"], 1) not in targets
    with pytest.raises(ChoiceError, match="given 2 times"):
        applications.target("mesh", [*said.split(), "batch,batch"], 1)
    with pytest.raises(applications.Refusal, match="given 2 times"):
        applications.check("mesh", [*said.split(), "batch, batch"], 1)
