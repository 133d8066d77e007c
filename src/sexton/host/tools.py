"""Where the programs that set up networks are: not on everybody's path, and never anywhere else."""

from __future__ import annotations

import os

TOOLS_PATH = os.defpath + ":/usr/sbin:/sbin"
