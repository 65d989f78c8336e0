"""The orderings as pure functions of the number of ranks; importing this package registers those of all its modules."""

import pkgutil
from importlib import import_module

for module in pkgutil.iter_modules(__path__):
    import_module(f"{__name__}.{module.name}")
