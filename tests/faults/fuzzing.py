"""Changes files at random, and looks at what comes of opening them: shared by the fuzzed tests.

What comes must be an error of grls that names the file and a remedy, or an answer. Another exception, code
that is run, or memory beyond what a small file needs is a fault.
"""

import faulthandler
import json
import os
import re
import resource
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from grls.errors import GrlsError

EXAMPLES = int(os.environ.get("GRLS_FUZZ", "0"))
"""Examples of each test, at random; 0: the short form, which is always the same."""
MOST_MIB = 200
"""Memory that opening a file of a few kilobytes may add to the process."""
MOST_SECONDS = 120
"""The longest time for one file; a library in C that walks for ever hears no signal."""


def fuzzed(short: int, share: float = 1.0) -> settings:
    """Settings of a test: so many examples in the short form, a share of ``GRLS_FUZZ`` in the long one."""
    return settings(
        max_examples=max(1, int(EXAMPLES * share)) if EXAMPLES else short,
        deadline=None, derandomize=not EXAMPLES, database=None,
        suppress_health_check=list(HealthCheck),
        phases=list(Phase) if EXAMPLES else [Phase.explicit, Phase.generate],
    )  # fmt: skip


NUMBERS = st.one_of(
    st.sampled_from(
        [0, 1, -1, 2**15, 2**16 - 1, 2**31, 2**32, 2**63 - 1, -(2**63), 2**64, 10**400, 1e308, -0.0, 1e-320]
    ),
    st.integers(-3, 70),
    st.floats(),
)
CODE = [
    "!!python/object/apply:os.system ['echo']",
    "!!python/object/new:subprocess.Popen [['echo']]",
    "__import__('os').system('echo')",
    "${oc.env:HOME}",
]
TEXTS = st.one_of(
    st.text(max_size=6),
    st.sampled_from(
        ["", " ", "\0", "a\0b", "\ud800", ".", "..", "/", "../..", "~", "x" * 300, "a/" * 3000, "/dev/zero"]
    ),
    st.sampled_from(["<DONE>", "DONE", "\u2028", "\x85", "\r", "\t", "NaN", "1e999", "null", "bm25", *CODE]),
)


def _deep(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


JSON = st.one_of(
    st.recursive(
        st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=5,
    ),
    st.sampled_from([100, 900]).map(_deep),
)
_BYTES = [
    b"\xff", b"\0", b"\xef\xbb\xbf", b"\r", b"\r\n", b"\n", b"\t", b"\xe2\x80\xa8", b"\xed\xa0\x80", b"{",
    b"null", b"[" * 1500, b'{"a":' * 1500, b"9" * 5000, b"1e999", b"NaN", b'"\\ud800"', b"2001-99-99", b"? ",
    b"&a [*a]",
    *(text.encode() for text in CODE),
]  # fmt: skip
BYTES = st.binary(max_size=20) | st.sampled_from(_BYTES)


def changed_bytes(content: bytes, data: st.DataObject) -> bytes:
    """Bytes that are cut, replaced, repeated or put in, once to three times."""
    for _ in range(data.draw(st.integers(1, 3))):
        how = data.draw(st.sampled_from(["put in", "put in", "replace", "cut", "drop", "lines", "flip"]))
        first = data.draw(st.integers(0, len(content)))
        last = data.draw(st.integers(first, min(len(content), first + 12)))
        if how == "lines":
            content = b"".join(_changed_lines(content.splitlines(keepends=True), data))
        elif how == "cut":
            content = content[:first]
        elif how == "flip" and first < len(content):
            bit = 1 << data.draw(st.integers(0, 7))
            content = content[:first] + bytes([content[first] ^ bit]) + content[first + 1 :]
        else:
            new = b"" if how == "drop" else data.draw(BYTES)
            content = content[:first] + new + content[first if how == "put in" else last :]
    return content


def _changed_lines(lines: list[bytes], data: st.DataObject) -> list[bytes]:
    if not lines:
        return [b"\n"]
    places = st.integers(0, len(lines) - 1)
    one, other = data.draw(places), data.draw(places)
    how = data.draw(st.sampled_from(["swap", "repeat", "drop"]))
    if how == "swap":
        lines[one], lines[other] = lines[other], lines[one]
        return lines
    return [*lines[:one], *([lines[other], lines[one]] if how == "repeat" else []), *lines[one + 1 :]]


def changed_value(value: Any, data: st.DataObject) -> Any:
    """A JSON value with another value, a key more, or a key less, somewhere in it."""
    value = json.loads(json.dumps(value))
    holder: Any = [value]
    place: Any = 0
    while isinstance(holder[place], dict | list) and holder[place] and data.draw(st.integers(0, 5)):
        holder = holder[place]
        places = sorted(holder) if isinstance(holder, dict) else range(len(holder))
        place = data.draw(st.sampled_from(list(places)))
    how = data.draw(st.sampled_from(["replace", "replace", "replace", "wrap", "drop", "add"]))
    if how == "replace":
        holder[place] = data.draw(JSON)
    elif how == "wrap":
        holder[place] = [holder[place]]
    elif how == "drop":
        del holder[place]
    elif isinstance(holder, dict):
        holder[data.draw(TEXTS)] = data.draw(JSON)
    else:
        holder.insert(place, data.draw(JSON))
    return holder[0] if holder and holder == [value] and place == 0 else value


def changed_records(content: bytes, data: st.DataObject) -> bytes:
    """JSONL in which one object is changed, in its form as JSON; or any bytes of it."""
    if data.draw(st.integers(0, 2)) == 0:
        return changed_bytes(content, data)
    lines = content.decode().splitlines()
    place = data.draw(st.integers(0, len(lines) - 1))
    lines[place] = json.dumps(changed_value(json.loads(lines[place]), data))
    return "".join(line + "\n" for line in lines).encode()


def changed_json(content: bytes, data: st.DataObject) -> bytes:
    """A JSON document that is changed in its form as JSON; or any bytes of it."""
    if data.draw(st.integers(0, 4)) == 0:
        return changed_bytes(content, data)
    return json.dumps(changed_value(json.loads(content), data)).encode()


_RUNS = re.compile(
    r"pickle\.find_class|os\.(system|exec|posix_spawn|fork|putenv)|subprocess\.|socket\.connect"
)
_watch: list[list[str]] = []


def _heard(event: str, arguments: Any) -> None:
    if _watch and _RUNS.match(event):
        _watch[-1].append(f"{event} {arguments!r:.200}")


sys.addaudithook(_heard)


@contextmanager
def running_nothing() -> Iterator[None]:
    """Fail if a process is started, a connection opened, or an object unpickled in here."""
    _watch.append([])
    try:
        yield
    finally:
        events = _watch.pop()
    assert events == []


@contextmanager
def within_bounds() -> Iterator[None]:
    """Fail if the process takes much more memory in here; end it if it takes for ever.

    Memory is looked at for what is added to the most that the process ever had, also by libraries in C.
    """
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    faulthandler.dump_traceback_later(MOST_SECONDS, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024 < MOST_MIB


def tried(opening: Callable[[], Any], *names: Path | str) -> Any:
    """What a file gives; None where an error of grls refuses it, which names one of ``names``."""
    try:
        with within_bounds(), running_nothing():
            return opening()
    except GrlsError as error:
        told = str(error)
        assert any(str(name) in told for name in names), told
        assert told.rstrip().endswith((".", ")")), told
        assert len(told) < 10_001, told[:300]
        return None
