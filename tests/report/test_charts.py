"""What stands in a chart's element."""

from matplotlib.figure import Figure

from grls.report.drawing import _svg


def test_a_name_is_no_markup_and_no_pattern() -> None:
    figure = Figure()
    figure.subplots().plot([1, 2], [3, 4])
    for name in ('a"><img src=x onerror=alert(1)>', "c\\g<9>"):
        drawn = _svg(figure, name)
        assert "<img" not in drawn
        assert "\\g" not in drawn
        assert ' id="' in drawn
    assert 'id="plain-1-' in _svg(figure, "plain-1")
