"""Does the steps of the Dockerfile in a temporary folder, starts its command, and asks its health check.

    python .ci/container.py

It needs no docker daemon and no rights: the base image is the Python that runs this, and the step that makes
a user is left out. It makes a virtual environment of about 2 GB. Exit code 0: the server was ready.
"""

import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "helpers"))

from dockerfile import Stages, command_of, steps  # noqa: E402

PORT = "8765"
SECONDS = 300
RETRIEVER = """
import sys
from grls.data.corpus import Corpus
from grls.data.types import Passage
from grls.retrieve.bm25 import BM25Retriever
BM25Retriever(Corpus.from_passages([Passage("a", "an otter eats fish")])).save_pretrained(sys.argv[1])
"""


def main() -> int:
    """Build, start, ask."""
    found = list(steps((ROOT / "Dockerfile").read_text()))
    with TemporaryDirectory(prefix="grls-container-") as folder:
        place = Path(folder)
        stages = Stages(ROOT, place, {"TORCH_INDEX": os.environ.get("TORCH_INDEX", "")})
        stages.do(found, skipped=["useradd"])
        path = f"{place / 'opt/grls/bin'}:{os.environ['PATH']}"
        environment = {"PATH": path, "HF_HUB_OFFLINE": "1", "HOME": "/nonexistent"}
        retriever = place / "retrievers" / "default"
        subprocess.run(["python", "-c", RETRIEVER, str(retriever)], check=True, env=environment)
        command = [*command_of(found, "ENTRYPOINT"), *command_of(found, "CMD")]
        command = [word.replace("/retrievers", str(retriever.parent)) for word in with_port(command)]
        server = subprocess.Popen(command, env=environment)
        try:
            return _ready(with_port(command_of(found, "HEALTHCHECK")), environment)
        finally:
            server.terminate()
            print("the server ended with", server.wait(60))


def with_port(command: list[str]) -> list[str]:
    """A command of the container at the port of this check."""
    return [word.replace("8000", PORT) for word in command]


def _ready(check: list[str], environment: dict[str, str]) -> int:
    begun = time.monotonic()
    while time.monotonic() - begun < SECONDS:
        if subprocess.run(check, env=environment, stderr=subprocess.DEVNULL).returncode == 0:
            print("the health check passed")
            return 0
        time.sleep(1)
    print("the health check did not pass", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
