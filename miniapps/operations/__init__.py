"""The audit of PyTorch operations: what the bits of each depend on, beside its input.

    mpirun -n 2 python -m miniapps.operations
    fpna operations mine.py:function

Cases are blocks of work, dealt to the ranks; each is audited in a child process, which may crash or hang. What was
tried, and what came of it, is a certificate. See docs/explanation/operations.md.
"""

from miniapps.operations.config import OperationsConfig
from miniapps.runner.main import App

APP = App(
    name="operations",
    config=OperationsConfig,
    first="--function",
    serves=("device",),
    summary="an audit of PyTorch operations, or of a function of yours: what do their bits depend on",
    example="program.py:function",
)
