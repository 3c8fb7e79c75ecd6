"""Tries grls with the oldest versions that pyproject.toml allows, or with the newest, and says what breaks.

    python .ci/versions.py oldest
    python .ci/versions.py newest --python all

Makes a virtual environment in a temporary folder (about 2 GB), installs by uv what grls with the extra
``all`` requires, and runs tests that use every dependency. ``oldest`` takes of each requirement of grls the
first version from its lower bound on that has a wheel for this Python, and the newest of what these require;
``locked`` takes those of requirements.lock. torch is that of requirements.lock, whose CPU build is small;
``--torch`` takes another. Exit code 0: the versions fit together, and every test passed.
"""

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from pythons import HELP, ROOT, chosen, environment

RESOLUTION = {"oldest": "lowest-direct", "newest": "highest", "locked": "highest"}
RUNNER = ("pytest", "pytest-timeout", "hypothesis", "packaging")
TESTS = (
    "tests/index", "tests/retrieve/test_bm25.py", "tests/retrieve/test_spec.py",
    "tests/retrieve/encoded", "tests/retrieve/generative", "tests/models/load", "tests/models/test_lora.py",
    "tests/train/generator", "tests/train/biencoder", "tests/evaluation", "tests/report",
)  # fmt: skip


def main() -> int:
    """Make the environment and run the tests."""
    asked = arguments()
    for interpreter in chosen(asked.python):
        attempt(asked, interpreter)
    return 0


def attempt(asked: argparse.Namespace, interpreter: str) -> None:
    """Make the environment of an interpreter, and run the tests in it."""
    with TemporaryDirectory(prefix="grls-versions-", ignore_cleanup_errors=True) as folder:
        python, limits = environment(interpreter, Path(folder, "env")), Path(folder, "limits.txt")
        versions = locked() if asked.versions == "locked" else {}
        lines = [f"{name}=={version}\n" for name, version in (versions | {"torch": asked.torch}).items()]
        limits.write_text("".join(lines), encoding="utf-8")
        run(python, "-m", "pip", "install", "--quiet", f"torch=={asked.torch}", "uv")
        uv = (python, "-m", "uv", "pip", "install", "--quiet", "--constraint", limits)
        packages = ("--only-binary", ":all:", "--extra", "all", "--requirements", ROOT / "pyproject.toml")
        run(*uv, "--resolution", RESOLUTION[asked.versions], *packages)
        run(*uv, *RUNNER)
        print(differences(run(python, "-m", "uv", "pip", "freeze", shown=False)), flush=True)
        pytest = (python, "-m", "pytest", "-p", "no:cacheprovider", "-rf", "--tb=short")
        run(*pytest, *(asked.tests or TESTS), sources=True)


def arguments() -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("versions", choices=tuple(RESOLUTION))
    parser.add_argument("tests", nargs="*", help="tests, in place of those chosen here")
    parser.add_argument("--python", default=sys.executable, help=HELP)
    parser.add_argument("--torch", default=locked()["torch"], help="the version of torch")
    return parser.parse_args()


def run(*command: object, shown: bool = True, sources: bool = False) -> str:
    """Run a command in the repository; end where it fails.

    Tests import its ``sources``; for pip these would be an installed grls without its dependencies.
    """
    variables = os.environ | {
        "HF_HUB_OFFLINE": "1",
        "PYTHONPATH": str(ROOT) if sources else "",
        "VIRTUAL_ENV": str(Path(str(command[0])).parents[1]),
    }
    done = subprocess.run(
        [*map(str, command)], cwd=ROOT, env=variables, text=True, stdout=None if shown else subprocess.PIPE
    )
    if done.returncode:
        print(f"this failed: {' '.join(map(str, command))}", file=sys.stderr)
        raise SystemExit(1)
    return done.stdout or ""


def locked() -> dict[str, str]:
    """The versions of requirements.lock."""
    text = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    return dict(re.findall(r"^([\w.-]+)==(\S+)$", text, re.MULTILINE))


def differences(frozen: str) -> str:
    """The versions that are not those of requirements.lock."""
    known = {plain(name): version for name, version in locked().items()}
    rows = re.findall(r"^([\w.-]+)==([^\s+]+)", frozen, re.MULTILINE)
    other = [(name, version) for name, version in rows if known.get(plain(name)) != version]
    lines = [f"  {name:<28} {known.get(plain(name), '-'):>14} -> {version}" for name, version in other]
    return "\n".join([f"{len(rows)} packages, {len(other)} not as in requirements.lock:", *lines])


def plain(name: str) -> str:
    """A name as registries compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    sys.exit(main())
