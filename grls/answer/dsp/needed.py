"""DSPy, which is an extra: imported here, so that one place says how to install it.

The module also stops DSPy from downloading a list of prices at the first call of an endpoint; the list that
is installed with it is good enough. ``LITELLM_LOCAL_MODEL_COST_MAP=false`` allows the download.
"""

from __future__ import annotations

import os

from grls.errors import ConfigError

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "true")

try:
    import dspy
except ImportError as error:
    raise ConfigError(
        f"the programs of demonstrate-search-predict need DSPy, which cannot be imported ({error}); run "
        "`pip install 'grls[dsp]'`, or `pip install -e '.[dsp]'` in a checkout."
    ) from None

__all__ = ["dspy"]
