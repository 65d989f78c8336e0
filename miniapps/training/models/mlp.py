"""A multilayer perceptron with two hidden layers of one width."""

from miniapps.training.models import CLASSES


def shapes(model, edge: int) -> dict[str, tuple[int, ...]]:
    """Of weights (out, in) and biases."""
    widths = (edge * edge, model.hidden, model.hidden, CLASSES)
    names = ("hidden1", "hidden2", "output")
    of: dict[str, tuple[int, ...]] = {}
    for name, inner, outer in zip(names, widths, widths[1:], strict=False):
        of |= {f"{name}.weight": (outer, inner), f"{name}.bias": (outer,)}
    return of


def forward(tensors, images, mask=None):
    """The logits of `images`."""
    from torch.nn.functional import linear, relu

    w1, b1, w2, b2, w3, b3 = tensors
    x = relu(linear(images.flatten(1), w1, b1))
    x = relu(linear(x, w2, b2))
    return linear(x if mask is None else x * mask, w3, b3)
