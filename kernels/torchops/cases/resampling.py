"""Interpolation of images, and padding."""

import torch.nn.functional as F

from kernels.torchops.cases.operation import operation, prepared

SHAPES = {1: (16, 8, 128), 2: (16, 4, 20, 20), 3: (8, 2, 8, 8, 8)}
AXES_OF = {"linear": 1, "bilinear": 2, "bicubic": 2, "nearest": 2, "trilinear": 3}


@operation(
    "interpolate",
    documented=("torch.nn.functional.interpolate",),
    mode=("nearest", "linear", "bilinear", "bicubic", "trilinear"),
    factor=(0.5, 2.7),
)
def interpolate(draw, mode, factor):
    def call(x):
        return F.interpolate(x, scale_factor=factor, mode=mode)

    return prepared(call, draw.normal(SHAPES[AXES_OF[mode]]), differentiate=(0,), batch=(0,))


@operation(
    "grid_sample",
    documented=("torch.nn.functional.grid_sample",),
    mode=("bilinear", "nearest", "bicubic"),
)
def grid_sample(draw, mode):
    grid = 2.0 * draw.positive((16, 20, 20, 2)) - 2.0
    return prepared(
        lambda x, g: F.grid_sample(x, g, mode=mode, align_corners=False),
        draw.normal(SHAPES[2]),
        grid,
        differentiate=(0, 1),
        batch=(0, 1),
    )


def padded(draw, mode: str, axes: int):
    """Images with three more points at every edge."""
    return prepared(
        lambda x: F.pad(x, (3,) * (2 * axes), mode=mode),
        draw.normal(SHAPES[axes]),
        differentiate=(0,),
        batch=(0,),
    )


@operation("reflection_pad1d", documented=("torch.nn.ReflectionPad1d",))
def reflection_pad1d(draw):
    return padded(draw, "reflect", 1)


@operation("reflection_pad2d", documented=("torch.nn.ReflectionPad2d",))
def reflection_pad2d(draw):
    return padded(draw, "reflect", 2)


@operation("reflection_pad3d", documented=("torch.nn.ReflectionPad3d",))
def reflection_pad3d(draw):
    return padded(draw, "reflect", 3)


@operation("replication_pad1d", documented=("torch.nn.ReplicationPad1d",))
def replication_pad1d(draw):
    return padded(draw, "replicate", 1)


@operation("replication_pad2d", documented=("torch.nn.ReplicationPad2d",))
def replication_pad2d(draw):
    return padded(draw, "replicate", 2)


@operation("replication_pad3d", documented=("torch.nn.ReplicationPad3d",))
def replication_pad3d(draw):
    return padded(draw, "replicate", 3)


@operation("circular_pad2d", documented=())
def circular_pad2d(draw):
    return padded(draw, "circular", 2)
