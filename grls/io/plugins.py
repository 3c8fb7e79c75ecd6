"""Modules outside the package that add kinds of retrievers, index backends, measures and data sets.

Every command knows what they add. A plugin is a module that registers what it adds when it is imported.
``GRLS_PLUGINS`` names modules, with commas between them. An installed package names its module in its
``pyproject.toml``, as an entry point of the group ``grls.plugins``. Plugins are imported when a name is asked
for that the package does not have, so a command that needs none does not wait for them.
"""

from __future__ import annotations

import logging
import os
from importlib import import_module
from importlib.metadata import entry_points

from grls.errors import ConfigError

VARIABLE = "GRLS_PLUGINS"
GROUP = "grls.plugins"

logger = logging.getLogger(__name__)


def load_plugins() -> None:
    """Import the plugins; a module is imported once in a process.

    A plugin of an installed package that cannot be imported is a warning: a command may not need it.

    Raises:
        ConfigError: A module of ``GRLS_PLUGINS`` cannot be imported.
    """
    for name in filter(None, (part.strip() for part in os.environ.get(VARIABLE, "").split(","))):
        try:
            import_module(name)
        except ImportError as error:
            raise ConfigError(
                f"{VARIABLE}: the module {name!r} cannot be imported ({error}); install what it needs, or "
                "put the folder that holds it on PYTHONPATH."
            ) from error
    for point in entry_points(group=GROUP):
        try:
            import_module(point.module)
        except ImportError as error:
            logger.warning("the plugin %s cannot be imported (%s); it is left out.", point.value, error)
