"""Operators of PyTorch whose sums have a chosen order, forward and backward; see docs/how-to/torch.md.

`operators` is what users call, `opaque` what torch.library knows. Both import torch; this package does not.
"""
