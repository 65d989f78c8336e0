"""The command lines of `kernels.allreduce` and `kernels.sums`: the only place in `kernels` that knows argparse."""
