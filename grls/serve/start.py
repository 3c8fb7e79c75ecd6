"""The names of a server's folders, and its first lines, before anything is loaded. Light to import."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, TextIO

from grls.errors import ConfigError

Port = Annotated[int, "[0, 65535]"]
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")


def named_folders(folders: Sequence[str]) -> Mapping[str, str]:
    """Name -> folder, of folders or ``name=folder``."""
    named: dict[str, str] = {}
    for text in folders:
        name, equals, folder = text.partition("=")
        if not equals or Path(text).is_dir():
            name, folder = Path(text).resolve().name, text
        if not _NAME.fullmatch(name):
            raise ConfigError(
                f"{text!r}: a name of a retriever has up to 64 letters, digits, '.', '_' and '-', got "
                f"{name!r}; write name=folder."
            )
        if name in named:
            raise ConfigError(f"{name!r} stands for {named[name]} and {folder}; write name=folder for one.")
        named[name] = folder
    if not named:
        raise ConfigError("there is no retriever to serve: name at least one folder.")
    return named


def say(text: str, stream: TextIO | None = None) -> None:
    """Print a line about the start of a server; a closed stream is fine."""
    stream = stream or sys.stdout
    if stream is None:
        return
    code = stream.encoding or "utf-8"
    with suppress(OSError, ValueError):
        print(text.encode(code, "backslashreplace").decode(code), file=stream, flush=True)


def address_of(host: str, port: int) -> str:
    """The address of a server as a browser on this machine opens it."""
    bare = host.strip("[]")
    name = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}.get(bare, bare)
    return f"http://{f'[{name}]' if ':' in name else name}:{port}"


def loading(folders: Mapping[str, str], address: str) -> str:
    words = (f if Path(f).resolve().name == name else f"{name}={f}" for name, f in folders.items())
    return f"Loading {', '.join(words)} for {address}"
