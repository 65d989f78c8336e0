"""`python -m tools.reference FOLDER`: writes the generated pages there."""

import sys
from pathlib import Path

from tools.reference import pages

for path, text in pages().items():
    file = Path(sys.argv[1], path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
