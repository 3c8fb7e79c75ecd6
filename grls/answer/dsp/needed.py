"""DSPy, which is an extra: imported here, so that one place says how to install it.

The module also stops DSPy from downloading a list of prices at the first call of an endpoint;
``LITELLM_LOCAL_MODEL_COST_MAP=false`` allows the download.
"""

from __future__ import annotations

import os

from grls.io.ending import needing

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "true")

with needing("dsp", "demonstrate-search-predict"):
    import dspy

__all__ = ["dspy"]
