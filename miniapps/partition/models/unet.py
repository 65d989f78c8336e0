"""An encoder and decoder of convolutions: 5 x 5, 3 x 3, stride 2, transposed, a skip, batch norm over all samples."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from kernels import draws
from miniapps.learning.seeds import NOISE
from miniapps.partition.cuts.axes import Axis, evenly
from miniapps.partition.models import MeshModel, Task
from miniapps.runner.config import option

LEVEL = 0.5  # standard deviation of the noise, as a part of a pixel's range


@dataclass
class Options:
    """The options of convolutions."""

    channels: int = option(8, help="channels of the first convolution", minimum=1, maximum=1024)


@dataclass(frozen=True)
class Sizes:
    """Sizes, and numbers of blocks."""

    samples: int = 4
    channels: int = 2
    height: int = 24
    width: int = 16
    filters: int = 8
    batch: int = 4
    rows: int = 6
    columns: int = 4


class UNetModel(MeshModel):
    """Convolutions down and up again that remove noise from images."""

    Deck = Sizes
    RECIPES: ClassVar = {
        "dp": {"batch": "data"},
        "spatial": {"rows": "rows", "columns": "columns"},
        "dp+spatial": {"batch": "data", "rows": "rows", "columns": "columns"},
    }
    OPTIONS = Options

    def refused(self, deck: Sizes) -> str:
        """The network halves images once, so heights and widths must be even."""
        odd = [f"{name} = {n}" for name, n in (("height", deck.height), ("width", deck.width)) if n % 2]
        return f"{' and '.join(odd)}: images are halved; choose even numbers" if odd else ""

    def module(self, deck: Sizes):
        """The network with its loss: `forward(images (samples, channels, height, width), targets of one channel)`."""
        import torch
        from torch.nn.functional import mse_loss, relu

        def layer(kind, inner, outer, kernel, **options):
            return kind(inner, outer, kernel, bias=False, **options), torch.nn.BatchNorm2d(outer)

        class UNet(torch.nn.Module):
            def __init__(self):
                super().__init__()
                n, convolution, up = deck.filters, torch.nn.Conv2d, torch.nn.ConvTranspose2d
                self.enter, self.norm1 = layer(convolution, deck.channels, n, 5, padding=2)
                self.down, self.norm2 = layer(convolution, n, 2 * n, 3, padding=1, stride=2)
                self.bottom, self.norm3 = layer(convolution, 2 * n, 2 * n, 3, padding=1)
                self.up, self.norm4 = layer(up, 2 * n, n, 2, stride=2)
                self.leave = convolution(2 * n, 1, 3, padding=1)

            def forward(self, images, targets):
                fine = relu(self.norm1(self.enter(images)))
                coarse = relu(self.norm2(self.down(fine)))
                coarse = relu(self.norm3(self.bottom(coarse)))
                again = relu(self.norm4(self.up(coarse)))
                return mse_loss(self.leave(torch.cat([fine, again], dim=1)), targets)

        return UNet()

    def inputs(self, deck: Sizes, seed: int = 0):
        """Random images and targets."""
        import torch

        generator = torch.Generator().manual_seed(seed)
        plane = (deck.height, deck.width)
        images = torch.randn(deck.samples, deck.channels, *plane, generator=generator)
        return images, torch.randn(deck.samples, 1, *plane, generator=generator)

    def axes(self, deck: Sizes) -> tuple[Axis, ...]:
        """batch, rows and columns."""
        return (
            evenly("batch", deck.samples, deck.batch),
            evenly("rows", deck.height, deck.rows),
            evenly("columns", deck.width, deck.columns),
        )

    def annotations(self, deck: Sizes):
        """Cuts samples and planes, not weights."""
        return dict.fromkeys((0, 1), ("batch", None, "rows", "columns"))

    def sized(self, sizes, task: Task) -> Sizes:
        edge = task.edge
        cut = next(blocks for blocks in (7, 4, 2, 1) if edge % (2 * blocks) == 0)
        return Sizes(
            samples=task.batch, channels=1, height=edge, width=edge, filters=sizes.channels,
            batch=task.batch // task.micro, rows=cut, columns=cut,
        )  # fmt: skip

    def batch(self, samples, labels, task: Task, draw):
        import torch

        noise = draws.normal(draw(NOISE), tuple(samples.shape)).astype(np.float32)
        noisy = samples + torch.from_numpy(np.float32(LEVEL) * noise)
        return noisy[:, None], samples[:, None]

    def costs(self, deck: Sizes) -> tuple[int, int]:
        return 60 * deck.filters**2, 24 * deck.samples * deck.filters * deck.height * deck.width


MODEL = UNetModel()
