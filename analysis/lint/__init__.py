"""Rules that find conclusions which an experiment does not support.

They follow Hoefler and Belli, "Scientific Benchmarking of Parallel Computing Systems" (SC'15), whose twelve rules
list what to do and to report so that measurements can be interpreted."""
