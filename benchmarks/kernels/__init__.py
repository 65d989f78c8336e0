"""What the kernels of one process cost."""
