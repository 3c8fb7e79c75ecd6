"""What other libraries raise and print on a full disk."""

import errno
import threading

import pytest
from failing import raises

from grls.io import ending
from grls.io.files import is_write_failure


def test_errors_of_writers_in_other_languages_are_known() -> None:
    for text in (
        "basic_ios::clear: iostream error",
        "PytorchStreamWriter failed writing file",
        "(os error 28)",
    ):
        assert is_write_failure(RuntimeError(text))
    assert not is_write_failure(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))


@pytest.mark.parametrize(("number", "printed"), [(errno.ENOSPC, False), (errno.ENOENT, True)])
def test_a_thread_that_cannot_write_leaves_the_report_to_the_main_thread(
    number: int, printed: bool, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threading, "excepthook", threading.__excepthook__)

    def write() -> None:
        raise OSError(number, "no room")

    def command() -> None:
        thread = threading.Thread(target=write)
        thread.start()
        thread.join()
        write()

    if printed:
        raises(OSError, "no room", ending.reported, command)
    else:
        assert ending.reported(command) == 1
    assert ("Traceback" in capfd.readouterr().err) == printed
