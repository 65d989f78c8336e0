"""Losses of a batch."""

import torch
import torch.nn.functional as F

from kernels.torchops.cases.operation import operation, prepared

ROWS = (64, 20_000)


@operation("cross_entropy", rows=ROWS, reduction=("none", "sum", "mean"))
def cross_entropy(draw, rows, reduction):
    return prepared(
        lambda x, y: F.cross_entropy(x, y, reduction=reduction),
        draw.normal((rows, 10)),
        draw.index(rows, 10),
        differentiate=(0,),
        batch=(0, 1) if reduction == "none" else (),
    )


@operation("nll_loss", documented=("torch.nn.NLLLoss",), rows=ROWS, axes=(1, 2))
def nll_loss(draw, rows, axes):
    tail = (7, 7) if axes == 2 else ()
    rows = rows // 10 if axes == 2 else rows
    return prepared(
        lambda x, y: F.nll_loss(x, y, reduction="sum"),
        draw.normal((rows, 10, *tail)),
        draw.index((rows, *tail), 10),
        differentiate=(0,),
    )


@operation("mse_loss", rows=ROWS)
def mse_loss(draw, rows):
    return prepared(
        lambda x, y: F.mse_loss(x, y, reduction="sum"),
        draw.normal((rows, 10)),
        draw.normal((rows, 10)),
        differentiate=(0,),
    )


@operation("kl_div", rows=ROWS)
def kl_div(draw, rows):
    return prepared(
        lambda x, y: F.kl_div(x, y, reduction="sum"),
        draw.normal((rows, 10)),
        draw.positive((rows, 10)),
        differentiate=(0,),
    )


@operation("bce_with_logits", documented=(), rows=ROWS)
def bce_with_logits(draw, rows):
    return prepared(
        lambda x, y: F.binary_cross_entropy_with_logits(x, y, reduction="sum"),
        draw.normal((rows, 10)),
        draw.positive((rows, 10)) - 0.5,
        differentiate=(0,),
    )


@operation("ctc_loss", documented=("torch.nn.CTCLoss",), length=(50,), batch=(4, 32))
def ctc_loss(draw, length, batch):
    inputs, targets = torch.full((batch,), length), torch.full((batch,), 10)
    return prepared(
        lambda x, y: F.ctc_loss(x.log_softmax(2), y, inputs, targets, reduction="sum"),
        draw.normal((length, batch, 20)),
        1 + draw.index((batch, 10), 19),
        differentiate=(0,),
    )
