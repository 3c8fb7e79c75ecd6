"""The wheel, and environments that it is installed into."""

from importlib.metadata import PackageNotFoundError
from importlib.util import find_spec
from pathlib import Path

import pytest
from installed_packages import Environment, build_sdist, build_wheel


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    missing = [name for name in ("pip", "setuptools", "wheel") if find_spec(name) is None]
    if missing:
        pytest.skip(f"building a wheel without a network needs {', '.join(missing)}")
    return build_wheel(build_sdist(tmp_path_factory.mktemp("build")))


@pytest.fixture(scope="session")
def everything(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """``pip install "grls[all]"``."""
    made = Environment(tmp_path_factory.mktemp("all") / "env")
    try:
        made.install(wheel, "all")
    except PackageNotFoundError as error:
        pytest.skip(f"an extra is not installed here: {error}")  # `make install` installs all
    return made


@pytest.fixture(scope="session")
def core(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """``pip install grls``."""
    made = Environment(tmp_path_factory.mktemp("core") / "env")
    made.install(wheel)
    return made


@pytest.fixture(scope="session")
def models(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """``pip install "grls[models,eval]"``."""
    made = Environment(tmp_path_factory.mktemp("models") / "env")
    made.install(wheel, "models", "eval")
    return made
