"""Learning curves: means and intervals over seeds, at the updates that all of them have."""

from __future__ import annotations

import json
import math

import pytest

from gnnplace.report.learning_curves import Rated, beside, curves, estimate
from gnnplace.report.page import plain


def test_an_interval_is_student_s():
    assert estimate([4.0]) == pytest.approx((4.0, 4.0, 4.0, 1))
    mean, low, high, seeds = estimate([math.exp(value) for value in (1, 2, 3, 4)])
    half = 3.182446 * (5 / 3) ** 0.5 / 2  # of three degrees of freedom, the standard deviation, the root of four seeds
    assert seeds == 4 and [math.log(value) for value in (low, mean, high)] == pytest.approx([2.5 - half, 2.5, 2.5 + half], rel=1e-6)


def test_a_value_holds_until_the_next_and_curves_begin_where_all_seeds_have_one():
    figure = curves({("a", "best"): [{0: 9.0, 4: 2.0}, {2: 4.0, 4: 8.0}]}, {"a": "#000000"}, {"bound": 1.0}, "ms")
    band, line, bound = figure["data"]
    assert line["x"] == [2, 4] and line["y"] == pytest.approx([6, 4]) and (bound["x"], bound["y"]) == ([2, 4], [1.0, 1.0])
    pairs = [estimate([9.0, 4.0]), estimate([2.0, 8.0])]
    assert band["y"] == [pairs[0].high, pairs[1].high, pairs[1].low, pairs[0].low]


def test_one_seed_has_no_band():
    figure = curves({("a", "best"): [{0: 1.0}], ("a", "mean"): [{0: 2.0}]}, {"a": "#000000"}, {}, "ms")
    assert [trace["name"] for trace in figure["data"]] == ["a: best", "a: mean"]


def test_the_fastest_is_on_top():
    rated = [Rated("slow", estimate([3.0]), False), Rated("fast", estimate([1.0, 2.0]), True)]
    assert beside(rated, 0.5, "ms")["layout"]["yaxis"]["categoryarray"] == ["slow", "fast"]


def test_names_are_text():
    name = "<b>&amp; 9 % of %{x}, $y$"
    lines = {(name, what): [{0: 4.0, 9: 2.0}, {0: 5.0, 9: 3.0}] for what in ("best", "mean")}
    figures = curves(lines, {name: "#123456"}, {name: 1.0}, "ms"), beside([Rated(name, estimate([1.0]), True)], 0.5, "ms")
    assert name not in json.dumps(figures) and plain(name) == "&#60;b&#62;&#38;amp; 9 &#37; of &#37;{x}, &#36;y&#36;"
    assert json.dumps(figures).count(plain(name)) == 1 + 6 + 2 + 2  # a band, two lines, a level, a dot
