"""Shared paths and small models."""

import os
import sys
from pathlib import Path

# Before torch is loaded: the models here are too small for two threads, which only wait for each other where
# the machine is shared.
os.environ.setdefault("OMP_NUM_THREADS", "1")

sys.path.insert(0, str(Path(__file__).parent / "helpers"))

from hypothesis import settings

# No test is about time: a busy machine made examples fail by hypothesis' deadline of 200 ms.
settings.register_profile("grls", deadline=None)
settings.load_profile("grls")
