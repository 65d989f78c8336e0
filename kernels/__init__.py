"""Numerical and communication kernels whose order of additions is stated, chosen and tested."""

__version__ = "0.1.0"  # of the whole package; pyproject.toml and CITATION.cff have it too
VERSION = f"fpna-miniapps {__version__}"  # what --version prints
