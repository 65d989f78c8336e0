"""Two convolutions of 5 x 5 with ReLU and pooling by 2, and hidden layers."""

from dataclasses import dataclass

from miniapps.learning.samples.images import CLASSES
from miniapps.runner.config import option
from miniapps.training.models import Hidden, ImageModel, Shapes

KERNEL = 5


@dataclass
class Options(Hidden):
    """The options of convolutions."""

    channels: int = option(
        8,
        help="channels of the first convolution; the second has twice as many",
        minimum=1,
        maximum=1024,
    )
    hidden_layers: int = option(1, help="hidden layers of width model.hidden", minimum=1, maximum=8)


class Convolutions(ImageModel):
    """Two convolutions, hidden layers."""

    OPTIONS = Options
    CHAINED = True

    def shapes(self, sizes, edge: int) -> Shapes:
        first, second = sizes.channels, 2 * sizes.channels
        flat = second * (edge // 4) ** 2
        of: Shapes = {
            "conv1.weight": (first, 1, KERNEL, KERNEL),
            "conv1.bias": (first,),
            "conv2.weight": (second, first, KERNEL, KERNEL),
            "conv2.bias": (second,),
        }
        for k in range(sizes.hidden_layers):
            name = "hidden" if k == 0 else f"hidden{k + 1}"
            of |= {
                f"{name}.weight": (sizes.hidden, sizes.hidden if k else flat),
                f"{name}.bias": (sizes.hidden,),
            }
        return of | {"output.weight": (CLASSES, sizes.hidden), "output.bias": (CLASSES,)}

    def forward(self, tensors, images, mask=None):
        from torch.nn.functional import conv2d, linear, max_pool2d, relu

        w1, b1, w2, b2, *hidden, w, b = tensors
        x = max_pool2d(relu(conv2d(images.unsqueeze(1), w1, b1, padding=KERNEL // 2)), 2)
        x = max_pool2d(relu(conv2d(x, w2, b2, padding=KERNEL // 2)), 2)
        x = x.flatten(1)
        for weights, biases in zip(hidden[::2], hidden[1::2], strict=True):
            x = relu(linear(x, weights, biases))
        return linear(x if mask is None else x * mask, w, b)

    def activations(self, sizes, edge: int) -> int:
        return edge * edge * sizes.channels * 3 // 2


MODEL = Convolutions()
