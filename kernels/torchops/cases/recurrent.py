"""Recurrent networks of one layer over eight steps."""

import torch

from kernels.torchops.cases.operation import operation, prepared

GATES = {"rnn": 1, "gru": 3, "lstm": 4}
INNER = 24


def cell(draw, kind: str, hidden: int):
    """A recurrent layer over a batch; a sample is a sequence."""
    gates = GATES[kind] * hidden
    weights = [
        draw.normal(shape, scale=0.2) for shape in ((gates, INNER), (gates, hidden), (gates,), (gates,))
    ]

    def call(x, *tensors):
        start = torch.zeros(1, len(x), hidden, dtype=x.dtype, device=x.device)
        state = (start, start) if kind == "lstm" else start
        run = getattr(torch, "rnn_tanh" if kind == "rnn" else kind)
        # Training mode without dropout: cuDNN computes gradients only in training mode.
        return run(x, state, list(tensors), True, 1, 0.0, True, False, True)[0]

    return prepared(call, draw.normal((64, 8, INNER)), *weights, differentiate=(0, 1, 2, 3, 4), batch=(0,))


@operation("rnn", hidden=(16, 64))
def rnn(draw, hidden):
    return cell(draw, "rnn", hidden)


@operation("gru", hidden=(16, 64))
def gru(draw, hidden):
    return cell(draw, "gru", hidden)


@operation("lstm", hidden=(16, 64))
def lstm(draw, hidden):
    return cell(draw, "lstm", hidden)
