"""Packages that are not installed."""

import sys

import pytest
from fixture_types import Capsys, Patch

from grls.errors import ConfigError
from grls.io import ending
from grls.io.ending import lacking_extras, missing, needing, require


def test_an_extra_that_is_installed_is_no_hindrance() -> None:
    require("serve", "a server")
    with needing("serve", "a server"):
        import uvicorn
    assert uvicorn.__name__ == "uvicorn"


def test_the_error_names_what_needs_which_package_and_the_remedy(monkeypatch: Patch) -> None:
    monkeypatch.setitem(sys.modules, "lightning", None)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(ConfigError) as raised:
        require("train", "grls fit")
    assert str(raised.value) == (
        'grls fit needs lightning and tensorboard (not installed): `pip install "grls[train]"`.'
    )
    assert "train" in lacking_extras()
    assert "serve" not in lacking_extras()


def test_an_import_that_fails_says_why(monkeypatch: Patch) -> None:
    monkeypatch.setitem(sys.modules, "ijson", None)
    expected = r"a page needs ijson \(.*None in sys.modules\): `pip install"
    with pytest.raises(ConfigError, match=expected), needing("releases", "a page"):
        import ijson  # noqa: F401


def test_a_command_reports_a_package_of_an_extra_in_one_line(monkeypatch: Patch, capsys: Capsys) -> None:
    monkeypatch.setitem(sys.modules, "lightning", None)

    def run() -> None:
        import lightning.pytorch  # noqa: F401

    assert ending.exit_code_of(run, str) == 1
    assert capsys.readouterr().err == (
        'error: this needs lightning (not installed): `pip install "grls[train]"`.\n'
    )


def test_other_imports_that_fail_are_bugs() -> None:
    assert missing(ModuleNotFoundError("no", name="grls.nowhere")) is None
    assert missing(ImportError("cannot import name 'x' from 'lightning'", name="lightning")) is None
    with pytest.raises(ModuleNotFoundError):
        ending.exit_code_of(lambda: __import__("nowhere_at_all"), str)
