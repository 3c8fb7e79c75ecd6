"""Frozen values as small JSON files, and when a value is still the frozen one.

Ids, texts, counts and decisions are the same exactly; numbers of floating point up to what another CPU
makes of them.
"""

import json
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent / "frozen"
RELATIVE = 1e-4
ABSOLUTE = 1e-5
TIE = 1e-3
"""Scores as near as this to each other may stand in any order."""


def freeze(name: str, value: Any) -> None:
    """Write ``NAME.json``: six digits a number, a line for each entry of the first two levels."""
    HERE.mkdir(exist_ok=True)
    text = _indented(rounded(json.loads(json.dumps(value))), 2)
    (HERE / f"{name}.json").write_text(text + "\n", encoding="utf-8")


def frozen(name: str) -> Any:
    return json.loads((HERE / f"{name}.json").read_text(encoding="utf-8"))


def rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: rounded(some) for key, some in value.items()}
    return [rounded(some) for some in value] if isinstance(value, list) else value


def _indented(value: Any, levels: int, depth: int = 0) -> str:
    if not isinstance(value, dict) or depth == levels:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    space = " " * (depth + 1)
    entries = [f"{space}{json.dumps(k)}: {_indented(v, levels, depth + 1)}" for k, v in value.items()]
    return "{\n" + ",\n".join(entries) + "\n" + " " * depth + "}"


def differences(expected: Any, found: Any, place: str = "") -> list[str]:
    """What differs, each with its place; empty where all is as it was frozen.

    Args:
        expected: What was frozen.
        found: What was computed, as JSON's types.
        place: Where in the whole this stands.
    """
    if isinstance(expected, dict) and isinstance(found, dict):
        keys = [f"{place}: {key} is in one alone" for key in sorted(expected.keys() ^ found.keys())]
        shared = [
            differences(expected[key], found[key], f"{place}/{key}") for key in expected if key in found
        ]
        return keys + [line for some in shared for line in some]
    if isinstance(expected, list) and isinstance(found, list):
        if len(expected) != len(found):
            return [f"{place}: {len(expected)} entries, now {len(found)}: {expected} and {found}"]
        if place.endswith("/hits"):
            return _ranking(expected, found, place)
        pairs = enumerate(zip(expected, found, strict=True))
        return [line for n, (a, b) in pairs for line in differences(a, b, f"{place}/{n}")]
    return [] if _same(expected, found) else [f"{place}: {expected!r}, now {found!r}"]


def _same(expected: Any, found: Any) -> bool:
    numbers = all(isinstance(some, int | float) and not isinstance(some, bool) for some in (expected, found))
    if numbers and (isinstance(expected, float) or isinstance(found, float)):
        return math.isclose(expected, found, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
    return type(expected) is type(found) and expected == found


def _ranking(expected: list[Any], found: list[Any], place: str) -> list[str]:
    """Rankings of [id, score]: the scores by rank, the ids by groups of scores that are nearly equal."""
    lines = [
        f"{place}/{n}: score {a!r}, now {b!r}"
        for n, ((_, a), (_, b)) in enumerate(zip(expected, found, strict=True))
        if not _same(a, b)
    ]
    ends = [n + 1 for n, (a, b) in enumerate(pairwise(expected)) if abs(a[1] - b[1]) > TIE]
    for first, last in pairwise([0, *ends, len(expected)]):
        was, now = (sorted(name for name, _ in some[first:last]) for some in (expected, found))
        if was != now:
            lines.append(f"{place}/{first}: {was}, now {now}")
    return lines
