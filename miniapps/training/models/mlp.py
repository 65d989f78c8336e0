"""A multilayer perceptron with two hidden layers of one width."""

from miniapps.learning.samples.images import CLASSES
from miniapps.training.models import ImageModel, Shapes


class Perceptron(ImageModel):
    """Two hidden layers of one width."""

    CHAINED = True

    def shapes(self, sizes, edge: int) -> Shapes:
        widths = (edge * edge, sizes.hidden, sizes.hidden, CLASSES)
        names = ("hidden1", "hidden2", "output")
        of: Shapes = {}
        for name, inner, outer in zip(names, widths, widths[1:], strict=False):
            of |= {f"{name}.weight": (outer, inner), f"{name}.bias": (outer,)}
        return of

    def forward(self, tensors, images, mask=None):
        from torch.nn.functional import linear, relu

        w1, b1, w2, b2, w3, b3 = tensors
        x = relu(linear(images.flatten(1), w1, b1))
        x = relu(linear(x, w2, b2))
        return linear(x if mask is None else x * mask, w3, b3)

    def activations(self, sizes, edge: int) -> int:
        return 4 * sizes.hidden


MODEL = Perceptron()
