"""An encoder and decoder of convolutions: 5 x 5, 3 x 3, stride 2, transposed, a skip, batch norm over all samples."""

from dataclasses import dataclass

from miniapps.partition.cuts.axes import Axis, evenly

RECIPES = {
    "dp": {"batch": "data"},
    "spatial": {"rows": "rows", "columns": "columns"},
    "dp+spatial": {"batch": "data", "rows": "rows", "columns": "columns"},
}
TOGETHER: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True)
class Deck:
    """Sizes, and blocks of the axes."""

    samples: int = 4
    channels: int = 2
    height: int = 24
    width: int = 16
    filters: int = 8
    batch: int = 4
    rows: int = 6
    columns: int = 4


def refused(deck: Deck) -> str:
    """Images are halved once, and doubled again."""
    odd = [f"{name} = {n}" for name, n in (("height", deck.height), ("width", deck.width)) if n % 2]
    return f"{' and '.join(odd)}: images are halved; choose even numbers" if odd else ""


def module(deck: Deck):
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


def inputs(deck: Deck, seed: int = 0):
    """Images and targets, drawn."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    plane = (deck.height, deck.width)
    images = torch.randn(deck.samples, deck.channels, *plane, generator=generator)
    return images, torch.randn(deck.samples, 1, *plane, generator=generator)


def axes(deck: Deck) -> tuple[Axis, ...]:
    """batch, rows and columns."""
    return (
        evenly("batch", deck.samples, deck.batch),
        evenly("rows", deck.height, deck.rows),
        evenly("columns", deck.width, deck.columns),
    )


def annotations(deck: Deck):
    """Samples and planes are cut; weights are not."""
    return dict.fromkeys((0, 1), ("batch", None, "rows", "columns"))
