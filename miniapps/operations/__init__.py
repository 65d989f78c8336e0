"""The audit of PyTorch operations: finds the conditions, beside the input, on which their bits depend.

    mpirun -n 2 python -m miniapps.operations
    fpna operations mine.py:function

Cases are assigned to ranks, and each runs in a child process, which may crash or hang. The certificate holds all trials
and results. See docs/explanation/operations.md.
"""

from miniapps.operations.config import OperationsConfig
from miniapps.runner.main import App

APP = App(
    name="operations",
    config=OperationsConfig,
    first="--function",
    serves=("device",),
    summary="an audit of PyTorch operations, or of your function: on what do their bits depend",
    example="program.py:function",
)
