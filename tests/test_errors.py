"""Errors carry options as values, and each surface words them: shell, Python, requests."""

import pickle

import pytest

from grls.errors import (
    ConfigError,
    DataError,
    GrlsError,
    Option,
    in_python,
    in_request,
    in_shell,
    worded,
    worded_for,
)


@pytest.mark.parametrize(
    ("text", "shell", "python", "request_"),
    [
        (f"choose {Option('hops.steps', 'fixed', 'dynamic')}.", "choose --hops.steps fixed or dynamic.",
         'choose steps="fixed" or "dynamic".', 'choose hops.steps "fixed" or "dynamic".'),
        (f"leave {Option('hops.steps')} out", "leave --hops.steps out", "leave steps out",
         "leave hops.steps out"),
        (f"with {Option('resume', True)}", "with --resume true", "with resume=True", "with resume true"),
        (f"raise {Option('limits.input', 96)}.", "raise --limits.input 96.", "raise input=96.",
         "raise limits.input 96."),
        (f"give {Option('retriever', 'FOLDER')}", "give --retriever FOLDER", "give retriever=FOLDER",
         "give retriever FOLDER"),
        (f"lower {Option('data.batch_size')}", "lower --data.batch_size", "lower data.batch_size",
         "lower data.batch_size"),
        (f"set {Option('dev_split', None)}", "set --dev_split null", "set dev_split=None",
         "set dev_split null"),
        (f"run `grls index update {Option('merge', True)}`.", *["run `grls index update --merge true`."] * 3),
        (f"got {Option('name', 'é⟧ x')}", "got --name é⟧ x", 'got name="é⟧ x"', 'got name "é⟧ x"'),
        ('a text ⟦["of a user⟧', *['a text ⟦["of a user⟧'] * 3),
        ('a text ⟦["x", y]⟧', *['a text ⟦["x", y]⟧'] * 3),
    ],
)  # fmt: skip
def test_each_surface_words_an_option(text: str, shell: str, python: str, request_: str) -> None:
    for surface, expected in ((in_shell, shell), (in_python, python), (in_request, request_)):
        assert worded(text, surface) == expected
        with worded_for(surface):
            assert str(ConfigError(text)) == expected
    assert str(ConfigError(text)) == python


def test_an_error_about_an_error_keeps_the_options() -> None:
    inner = ConfigError(f"leave {Option('hops.steps')} out.")
    outer = pickle.loads(pickle.dumps(DataError(f"hops: {inner}", "grls.json")))
    assert str(outer) == "grls.json: hops: leave steps out."
    with worded_for(in_shell):
        assert str(outer) == "grls.json: hops: leave --hops.steps out."
        assert f"{Option('k', 5)!s}" == "--k 5"  # as in the arguments of a log


def test_a_long_text_is_cut() -> None:
    text = str(GrlsError("x" * 20_000))
    assert "xxx … (12,000 characters left out) … xxx" in text
