"""The Pythons that grls is for, those of them on this machine, and virtual environments of them."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ALL = "all"
HELP = f"the interpreter; {ALL}: each that pyproject.toml names and this machine has"


def supported() -> list[str]:
    """The versions that pyproject.toml names, as ``3.13``."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    return re.findall(r'"Programming Language :: Python :: (3\.\d+)"', text)


def chosen(python: str) -> list[str]:
    """An interpreter, or with ``all`` those of this machine; says which versions it does not have."""
    if python != ALL:
        return [python]
    here = {}
    for version in supported():
        installed = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
        for name in (sys.executable, f"python{version}", *map(str, installed)):
            if version not in here and _version(name) == version:
                here[version] = name
    if lacking := [version for version in supported() if version not in here]:
        print(f"not on this machine, and not tried: Python {', '.join(lacking)}", flush=True)
    return list(here.values())


def environment(python: str, folder: Path) -> Path:
    """The interpreter of a new virtual environment, with pip."""
    subprocess.run([python, "-m", "venv", str(folder)], check=True)
    return folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def _version(python: str) -> str:
    try:
        program = "import sys; print('{}.{}'.format(*sys.version_info))"
        return subprocess.run([python, "-c", program], capture_output=True, text=True).stdout.strip()
    except OSError:
        return ""
