"""DSPy, which is an extra: imported from here, so that one place says how to install it."""

from __future__ import annotations

from grls.errors import ConfigError

try:
    import dspy
except ImportError as error:
    raise ConfigError(
        f"the programs of demonstrate-search-predict need DSPy, which cannot be imported ({error}); run "
        "`pip install 'grls[dsp]'`, or `pip install -e '.[dsp]'` in a checkout."
    ) from None

__all__ = ["dspy"]
