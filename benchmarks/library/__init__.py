"""Benchmarks of the library of sums for C, C++ and Fortran."""
