"""mpi4py.futures: squares of numbers, by a pool of ranks, in the order in which they were asked for."""

from mpi4py.futures import MPICommExecutor


def square(x):
    return x * x / 3


if __name__ == "__main__":
    with MPICommExecutor() as executor:
        if executor is not None:
            print("result", sum(executor.map(square, range(20))).hex())
