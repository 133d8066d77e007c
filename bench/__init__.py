"""What Sexton costs, measured beside the floor in the same run; each module runs alone with ``python -m``."""

import sys
from pathlib import Path

# The engine and the images of the tests serve the benchmarks as well.
_ROOT = Path(__file__).resolve().parent.parent
for _folder in ("tests", "scripts"):
    if str(_ROOT / _folder) not in sys.path:
        sys.path.insert(0, str(_ROOT / _folder))
