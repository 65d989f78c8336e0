"""Operators of PyTorch whose sums have a chosen order, forward and backward; see docs/how-to/torch.md.

Users call `operators`; `opaque` registers the operators of torch.library. Both import torch; this package does not.
"""
