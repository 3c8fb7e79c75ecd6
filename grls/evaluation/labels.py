"""Names of measures in tables: those of the glossary, in every table alike.

A report names a measure by a key (``f1_known_number``), a table by its label ("set F1, known number"). The
module does not know how a measure is computed.
"""

from __future__ import annotations

_LABELS = {
    "set f1": "set F1",
    "f1 known number": "set F1, known number",
    "set f1 known number": "set F1, known number",
    "done missing": "DONE missing",
}


def measure_label(*keys: str) -> str:
    """The label of a measure.

    Args:
        keys: The section of the report, if the key of the measure does not say it, and that key.
    """
    words = " ".join(keys).replace("_", " ")
    return _LABELS.get(words, words)
