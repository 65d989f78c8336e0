"""Two convolutions of 5 x 5 with ReLU and pooling by 2, one hidden layer."""

from miniapps.training.models import CLASSES

KERNEL = 5


def shapes(model, edge: int) -> dict[str, tuple[int, ...]]:
    """Of weights (out, in, 5, 5) and (out, in), and biases."""
    first, second = model.channels, 2 * model.channels
    flat = second * (edge // 4) ** 2
    return {
        "conv1.weight": (first, 1, KERNEL, KERNEL),
        "conv1.bias": (first,),
        "conv2.weight": (second, first, KERNEL, KERNEL),
        "conv2.bias": (second,),
        "hidden.weight": (model.hidden, flat),
        "hidden.bias": (model.hidden,),
        "output.weight": (CLASSES, model.hidden),
        "output.bias": (CLASSES,),
    }


def forward(tensors, images, mask=None):
    """The logits of `images`."""
    from torch.nn.functional import conv2d, linear, max_pool2d, relu

    w1, b1, w2, b2, w3, b3, w4, b4 = tensors
    x = max_pool2d(relu(conv2d(images.unsqueeze(1), w1, b1, padding=KERNEL // 2)), 2)
    x = max_pool2d(relu(conv2d(x, w2, b2, padding=KERNEL // 2)), 2)
    x = relu(linear(x.flatten(1), w3, b3))
    return linear(x if mask is None else x * mask, w4, b4)
