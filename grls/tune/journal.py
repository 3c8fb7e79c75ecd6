"""The measurements of tuning, kept as they come, so that a killed run goes on where it stopped."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from grls.io.resumable import GrowingFile

_JSON = (dict, list, str, int, float, type(None))


class Journal:
    """Measurements, each by its setting.

    Args:
        path: The file.
        settings: The settings of all measurements, as JSON values.

    Raises:
        MismatchError: The file was begun with other settings.
    """

    def __init__(self, path: str | Path, settings: dict[str, Any]):
        self._file = GrowingFile(path, settings, fields={"of": dict, "found": _JSON})
        self._known = {_key(record["of"]): record["found"] for record in self._file.records}

    def measured(self, of: dict[str, Any], measure: Callable[[], Any]) -> Any:
        """A measurement of before, or else a new one.

        Args:
            of: The setting that is measured: JSON values.
            measure: Measures it; gives JSON values.
        """
        key = _key(of)
        if key not in self._known:
            values = measure()
            self._file.add([{"of": of, "found": values}])
            self._known[key] = json.loads(json.dumps(values))
        return self._known[key]

    def remove(self) -> None:
        """Remove the file: the choices stand in the folder now."""
        self._file.remove()


def _key(of: dict[str, Any]) -> str:
    return json.dumps(of, sort_keys=True)
