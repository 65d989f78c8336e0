"""Gradients of micro-batches by torch, and their sums over all ranks in buckets."""
