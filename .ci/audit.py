"""Looks for known vulnerabilities in the versions of requirements.hashes, by pip-audit.

    python .ci/audit.py [--strict]

Where PyPI's advisories cannot be reached, it says so and ends with 0: `make lint` works without a network.
What is found is printed; with ``--strict`` the exit code is then 1. pip-audit has an environment of its own.
"""

import subprocess
import sys
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PLACE = ROOT / ".venv-audit"
RELEASE = "urllib3/2.5.0"
"""A release for which there are advisories."""
REACHED_IN = 5
"""Seconds."""


def main() -> int:
    """Audit, where that can be done."""
    if not reachable():
        print("audit: skipped, PyPI's advisories cannot be reached.")
        return 0
    tool = PLACE / "bin" / "pip-audit"
    if not tool.is_file():
        subprocess.run([sys.executable, "-m", "venv", PLACE], check=True)
        subprocess.run([PLACE / "bin" / "pip", "install", "--quiet", "pip-audit>=2.9"], check=True)
    command = [tool, "--requirement", ROOT / "requirements.hashes", "--disable-pip", "--progress-spinner=off"]
    found = subprocess.run(command, check=False).returncode
    if found and "--strict" not in sys.argv:
        print("audit: see above; `make audit` fails for it, `make lint` does not.")
        return 0
    return found


def reachable() -> bool:
    """Whether PyPI tells of advisories; a mirror may not."""
    try:
        from pip._internal.models.index import PyPI  # the address that pip knows

        with urllib.request.urlopen(f"{PyPI.pypi_url}/{RELEASE}/json", timeout=REACHED_IN) as answer:
            return answer.status == 200 and b'"vulnerabilities"' in answer.read()
    except (AttributeError, ImportError, OSError, ValueError):
        return False


if __name__ == "__main__":
    sys.exit(main())
