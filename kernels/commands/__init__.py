"""The command lines of `kernels.allreduce`, `kernels.contract` and `kernels.sums`: the only place in `kernels` that
knows argparse."""
