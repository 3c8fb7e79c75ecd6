"""Skips a test file where the extra of the server is not installed. To be imported before its packages."""

import pytest

for package in ("fastapi", "uvicorn", "prometheus_client", "httpx"):
    pytest.importorskip(package, reason='needs the extra serve: pip install "grls[serve]"')
