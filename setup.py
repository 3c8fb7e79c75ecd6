"""What pyproject.toml cannot say: a wheel holds the recipes of ``configs/`` as ``grls/configs``."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithRecipes(build_py):
    """Copies the recipes beside the modules; an editable installation reads those of the checkout."""

    def run(self) -> None:
        """Build."""
        super().run()
        if not self.editable_mode:
            folder = Path(self.build_lib) / "grls" / "configs"
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(Path(__file__).parent / "configs", folder)


setup(cmdclass={"build_py": BuildWithRecipes})
