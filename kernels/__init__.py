"""Numerical and communication kernels whose order of additions is stated, chosen and tested."""
