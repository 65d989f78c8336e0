"""`python -m tests.miniapps.tiny`."""

import sys

from miniapps.runner.main import main
from tests.miniapps.tiny import APP

sys.exit(main(APP))
