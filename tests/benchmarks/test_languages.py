import pytest

from benchmarks.languages import measure, read

PAIRS = read()


def test_every_language_has_passages_and_queries_of_its_own() -> None:
    assert len(PAIRS) == 12
    assert {len(pairs) for pairs in PAIRS.values()} == {12}


@pytest.mark.parametrize("language", PAIRS)
def test_words_find_what_one_expression_does_not(language: str, caplog: pytest.LogCaptureFixture) -> None:
    old, new, stems, old_apart, new_apart = measure(language, PAIRS[language])
    assert new is not None
    assert old is not None
    assert old_apart is not None
    assert new >= old
    assert new_apart == new >= old_apart
    assert stems is None or stems >= new
    if language in ("zh", "ja", "ko", "th", "ar"):
        assert new > 90 > 50 > old
    guessed = [record.args[0] for record in caplog.records if "seems to be in" in record.msg and record.args]
    assert guessed == ([] if language == "en" else [language])


def test_english_is_found_as_it_was() -> None:
    old, new, *_ = measure("en", PAIRS["en"])
    assert old == new
