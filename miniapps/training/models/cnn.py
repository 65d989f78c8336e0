"""Two convolutions of 5 x 5 with ReLU and pooling by 2, one hidden layer."""

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


class Convolutions(ImageModel):
    """Two convolutions, one hidden layer."""

    OPTIONS = Options
    CHAINED = True

    def shapes(self, sizes, edge: int) -> Shapes:
        first, second = sizes.channels, 2 * sizes.channels
        flat = second * (edge // 4) ** 2
        return {
            "conv1.weight": (first, 1, KERNEL, KERNEL),
            "conv1.bias": (first,),
            "conv2.weight": (second, first, KERNEL, KERNEL),
            "conv2.bias": (second,),
            "hidden.weight": (sizes.hidden, flat),
            "hidden.bias": (sizes.hidden,),
            "output.weight": (CLASSES, sizes.hidden),
            "output.bias": (CLASSES,),
        }

    def forward(self, tensors, images, mask=None):
        from torch.nn.functional import conv2d, linear, max_pool2d, relu

        w1, b1, w2, b2, w3, b3, w4, b4 = tensors
        x = max_pool2d(relu(conv2d(images.unsqueeze(1), w1, b1, padding=KERNEL // 2)), 2)
        x = max_pool2d(relu(conv2d(x, w2, b2, padding=KERNEL // 2)), 2)
        x = relu(linear(x.flatten(1), w3, b3))
        return linear(x if mask is None else x * mask, w4, b4)

    def activations(self, sizes, edge: int) -> int:
        return edge * edge * sizes.channels * 3 // 2


MODEL = Convolutions()
