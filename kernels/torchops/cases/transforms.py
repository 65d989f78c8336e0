"""Fourier transforms."""

import torch

from kernels.torchops.cases.operation import operation, prepared


@operation("fft", count=(64, 1000, 1021))
def fft(draw, count):
    return prepared(torch.fft.rfft, draw.normal((64, count)), differentiate=(0,), batch=(0,))


@operation("fft2", edge=(16, 60))
def fft2(draw, edge):
    return prepared(torch.fft.rfft2, draw.normal((16, edge, edge)), differentiate=(0,), batch=(0,))


@operation("stft", window=(64, 256))
def stft(draw, window):
    def call(x, w):
        return torch.view_as_real(torch.stft(x, window, window=w, return_complex=True))

    return prepared(call, draw.normal((16, 4000)), draw.positive(window), differentiate=(0,), batch=(0,))
