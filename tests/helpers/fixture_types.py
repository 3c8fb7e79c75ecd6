"""Short names for the types of pytest's fixtures."""

import pytest

Caplog = pytest.LogCaptureFixture
Capsys = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch
