"""What an experiment does not support: rules after Hoefler and Belli, "Scientific Benchmarking of Parallel Computing
Systems" (SC'15), whose twelve rules say what must be done and reported for measurements to be interpretable."""
