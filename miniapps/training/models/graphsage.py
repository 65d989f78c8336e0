"""GraphSAGE (Hamilton et al. 2017): two layers, each of a node and the mean of its neighbours, of length 1.

It knows nodes in the place of images: see `miniapps.training.graph`.
"""

CLASSES = 7  # of papers


def shapes(model, edge: int) -> dict[str, tuple[int, ...]]:
    """Of weights (out, in) and biases; `edge`: features of a node."""
    of: dict[str, tuple[int, ...]] = {}
    for name, inner, outer in (("layer1", edge, model.hidden), ("layer2", model.hidden, CLASSES)):
        of |= {
            f"{name}.neighbours": (outer, inner),
            f"{name}.own": (outer, inner),
            f"{name}.bias": (outer,),
        }
    return of


def forward(tensors, field, mask=None):
    """The logits of the nodes of a `Field`; `mask` (nodes of the graph, hidden)."""
    from torch.nn.functional import relu

    h = relu(layer(field.features, field.first, *tensors[:3]))
    if mask is not None:
        h = h * mask[field.hidden]
    return layer(h, field.second, *tensors[3:])


def layer(x, hood, of_neighbours, of_own, bias):
    """W1 mean(neighbours) + b + W2 x, divided by its length, for the nodes of a `Hood` from those that it needs."""
    from torch.nn.functional import linear, normalize

    from kernels.torchops.alternatives.operators import index_select, segment_sum

    sums = segment_sum(
        index_select(x, 0, hood.sources, order=hood.order),
        index=hood.targets,
        bins=hood.count,
        order=hood.order,
    )
    own = linear(x[hood.own], of_own)
    return normalize(linear(sums / hood.degrees, of_neighbours, bias) + own)
