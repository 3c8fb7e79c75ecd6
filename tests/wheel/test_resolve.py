"""Each extra resolves to the newest packages: with our bounds as without them."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = [extra for extra in PROJECT["optional-dependencies"] if extra not in ("all", "test", "local-models")]
HELD = {"dsp": {"litellm", "openai"}}
"""Extra -> the packages that it holds back; ``pyproject.toml`` says why."""


def resolved(needs: list[str]) -> dict[str, str]:
    """Package -> the version that uv takes."""
    command = (sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--no-header", "--no-annotate", "-")
    done = subprocess.run(command, input="\n".join(needs), text=True, capture_output=True, timeout=300)
    if re.search("connect|dns|Failed to fetch|No module named uv", done.stderr):
        pytest.skip("uv reaches no index of packages")
    assert done.returncode == 0, done.stderr
    return dict(re.findall(r"^([\w.-]+)==(\S+)", done.stdout, re.MULTILINE))


def required(needs: list[str]) -> list[str]:
    """The requirements, with those of extras of grls in place of the extras."""
    own = {need: re.match(r"grls\[(.*)\]", need) for need in needs}
    brought = [
        PROJECT["optional-dependencies"][e] for found in own.values() if found for e in found[1].split(",")
    ]
    return [need for need in needs if not own[need]] + [one for extra in brought for one in required(extra)]


@pytest.mark.parametrize("extra", EXTRAS)
def test_an_extra_holds_nothing_back(extra: str) -> None:
    needs = required([*PROJECT["dependencies"], *PROJECT["optional-dependencies"][extra]])
    ours, free = resolved(needs), resolved([re.split(r"[<>=]", need)[0] for need in needs])
    held = {name: free[name] for name in ours.keys() & free.keys() if ours[name] != free[name]}
    assert held.keys() == HELD.get(extra, set()), held
