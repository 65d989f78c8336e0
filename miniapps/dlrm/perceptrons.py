"""DLRM (Naumov et al., arXiv 1906.00091): a perceptron for dense features; products between its output and the sums of
bags, and between the sums; and a second perceptron.

It takes sums of bags; `miniapps.embeddings` computes them from the tables.
"""


def shapes(hidden: int, columns: int, features: int, tables: int) -> dict[str, tuple[int, ...]]:
    """Shapes of weights (out, in) and biases of both perceptrons, for `tables` tables of `columns`."""
    vectors = tables + 1
    products = vectors * (vectors - 1) // 2
    widths = {
        "bottom1": (hidden, features),
        "bottom2": (columns, hidden),
        "top1": (hidden, columns + products),
        "top2": (1, hidden),
    }
    of: dict[str, tuple[int, ...]] = {}
    for name, shape in widths.items():
        of |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
    return of


def forward(tensors, dense, pooled):
    """The logits (n,) of samples with `dense` (n, features) and `pooled` (n, tables, columns)."""
    import torch
    from torch.nn.functional import linear, relu

    w1, b1, w2, b2, w3, b3, w4, b4 = tensors
    bottom = relu(linear(relu(linear(dense, w1, b1)), w2, b2))
    vectors = torch.cat([bottom.unsqueeze(1), pooled], 1)
    products = torch.bmm(vectors, vectors.transpose(1, 2))
    first, second = torch.tril_indices(vectors.shape[1], vectors.shape[1], -1)
    x = torch.cat([bottom, products[:, first, second]], 1)
    return linear(relu(linear(x, w3, b3)), w4, b4).squeeze(1)
