"""Annotations, priorities, and the errors for those that do not fit."""

import pytest

from miniapps.partition.cuts.axes import evenly, text
from miniapps.partition.graphs.graph import Graph, Node, Source, Tensor
from miniapps.partition.planning.annotate import Annotation, AnnotationError
from miniapps.partition.planning.plan import plan

AXES = [
    evenly("batch", 6, 3),
    evenly("heads", 4, 4),
    evenly("wide", 12, 2),
    evenly("stripes", 12, 4),
    evenly("long", 18, 9),
]


def product(annotations, together=()):
    """The plan of x (6, 12) @ w (12, 8)."""
    x, w = Tensor("input.x", (6, 12), "float32"), Tensor("parameter.w", (12, 8), "float32")
    sources = (Source(x, "input", "0"), Source(w, "parameter", "w"))
    node = Node(
        "mm",
        "aten.mm.default",
        ("%input.x", "%parameter.w"),
        (),
        (Tensor("mm", (6, 8), "float32"),),
        "blocks.0",
    )
    return plan(Graph(sources, (node,), "mm", ()), AXES, annotations, together)


def cut(found, name):
    return text(found.values[name].cut)


def test_axes_flow_forward_and_an_axis_cuts_the_major_factor_of_a_larger_dim():
    found = product({0: ("batch", None), "w": (None, "heads")})
    assert cut(found, "mm") == "batch:6 x heads:4*2"


def test_a_contracted_dim_is_cut_in_both_operands():
    found = product({0: (None, "wide")})
    assert cut(found, "parameter.w") == "wide:12 x 8" and found.values["mm"].partial == ("wide",)


def test_annotated_tensors_never_change():
    found = product({0: ("batch", None), "w": (None, None)})
    assert cut(found, "parameter.w") == "12 x 8" and cut(found, "input.x") == "batch:6 x 12"


def test_axes_that_may_not_meet_do_not_meet_in_a_result():
    found = product({0: ("batch", None), "w": (None, "heads")}, [("batch", "heads")])
    assert cut(found, "mm") == "6 x heads:4*2"  # the smaller operand moves
    assert list(found.reasons) == ["mm"]


def test_of_two_priorities_the_first_flows_first():
    """The other operand is moved."""
    first = product({0: Annotation((None, "wide"), 0), "w": Annotation(("stripes", None), 1)})
    assert first.values["mm"].partial == ("wide",) and cut(first, "parameter.w") == "stripes:12 x 8"


@pytest.mark.parametrize(
    ("annotations", "message"),
    [
        ({"v": ("batch", None)}, "no parameter, buffer or input has this name; there are 0, w"),
        ({0: ("batch",)}, "1 dims for a tensor of shape"),
        ({0: ("rows", None)}, "no axis 'rows'; there are batch, heads, wide, stripes, long"),
        ({0: ("batch", "batch")}, "axis batch twice; leave one dim None"),
        (
            {"w": (None, "long")},
            "dim 1 has 8 elements, too few for the 9 blocks of axis long; give it fewer blocks",
        ),
        (
            {0: (None, "wide"), "w": ("stripes", None)},
            r"conflict at mm .*mm.default of blocks.0.*axes wide and stripes .*priority",
        ),
    ],
)
def test_what_does_not_fit_is_named_with_its_remedy(annotations, message):
    with pytest.raises(AnnotationError, match=message):
        product(annotations)


def test_axes_that_may_not_meet_are_not_annotated_together():
    with pytest.raises(AnnotationError, match="never cut one tensor"):
        product({0: ("batch", "wide")}, [("batch", "wide")])
