"""Queries as Grafana would send them."""

from __future__ import annotations

import pytest

from dashboards.interpolate import ANY, Target, any_of, initial, interpolate, legend_of, targets, used_variables

EXPR = 'sum by (run) (rate(x_total{run=~"$run"}[$__rate_interval])) / ${__range_s}'


def test_the_built_in_variables_follow_range_and_step() -> None:
    sent = interpolate(EXPR, {"run": ANY}, range_s=300, step_s=1)
    assert sent == 'sum by (run) (rate(x_total{run=~".+"}[4s])) / 300'
    assert "[11s]" in interpolate(EXPR, {"run": ANY}, range_s=3000, step_s=10)


def test_a_step_below_the_scrape_interval_is_never_sent() -> None:
    assert interpolate("x[$__interval]", {}, range_s=10, step_s=0.1) == "x[1s]"


def test_many_values_are_joined_and_one_stands_alone() -> None:
    assert any_of(["a", "b"]) == "(a|b)"
    assert any_of(["a"]) == "a"


def test_values_are_quoted_for_a_regular_expression_inside_a_string() -> None:
    assert any_of(["wan.1g+x"]) == r"wan\\.1g\\+x"


def test_a_variable_without_a_value_is_an_error() -> None:
    with pytest.raises(KeyError, match="topo"):
        interpolate('x{topo="$topo"}', {"run": "a"}, range_s=1)


def test_what_is_no_variable_stays() -> None:
    assert used_variables('label_replace(x, "a", "$1", "b", "(.*)") + $run + ${topo}') == {"run", "topo"}


def test_targets_of_collapsed_rows_are_found_too() -> None:
    panel = {"id": 2, "title": "T", "type": "stat", "targets": [{"refId": "A", "expr": "x", "instant": True}]}
    board = {"uid": "u", "panels": [{"type": "row", "panels": [panel]}]}
    assert targets(board) == [Target("u", 2, "T", "stat", "A", "x", "", instant=True, format="time_series")]


def test_a_dashboard_opens_with_all_of_the_data_and_its_own_choices() -> None:
    verdict = {"name": "verdict", "type": "custom", "current": {"value": ["valid", "suspect"]}}
    variables = [{"name": "datasource", "type": "datasource"}, {"name": "run", "type": "query"}, verdict]
    assert initial({"templating": {"list": variables}}) == {"run": ANY, "verdict": ["valid", "suspect"]}


def test_legends_take_their_labels() -> None:
    assert legend_of("{{run}} rank {{ rank }}", {"run": "a", "rank": "3"}) == "a rank 3"
    assert legend_of("", {"run": "a"}) == '{run="a"}'
