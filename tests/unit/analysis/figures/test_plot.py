"""`longhaul plot`, the same from Python, and the page that needs no network."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from testbed.analysis.figures.plot import plot
from testbed.analysis.record.record import load
from testbed.core.errors import InputError
from testbed.core.record.figure_kinds import FIGURE_KINDS
from testbed.orchestrator.cli.main import main
from tests.chromium import Chromium
from tests.unit.analysis.figures.drawn_runs import drawn_run

ROOT = Path(__file__).resolve().parents[4]
HOSTILE = "</script><script>alert(1)</script><!--"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three valid runs and an invalid one."""
    root = tmp_path_factory.mktemp("runs")
    for compressor in ("none", "topk", "int8"):
        drawn_run(root, "ddp", compressor)
    drawn_run(root, "ddp", "sz3", verdict="invalid")
    return root


def test_from_python_it_is_a_figure_of_matplotlib_and_a_file(runs: Path, tmp_path: Path) -> None:
    paths = sorted(runs.iterdir())
    with pytest.warns(UserWarning, match="Left out: 1 of 4 runs") as said:
        figure = plot(paths, "pareto", tmp_path / "new" / "figure.pdf", columns=2)
    assert said[0].filename == __file__
    assert isinstance(figure, Figure) and figure.get_figwidth() == 7.0
    assert (tmp_path / "new" / "figure.pdf").read_bytes().startswith(b"%PDF")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plot(paths, "pareto", allow_invalid=True)
        plot(str(paths[0]))
        plot([load(paths[0]), paths[1]])


def test_every_fault_is_named_at_once(tmp_path: Path, runs: Path) -> None:
    run = next(iter(sorted(runs.iterdir())))
    with pytest.raises(InputError) as refused:
        plot([run], "paretto", tmp_path / "figure.doc", columns=3, band="none")
    assert len(refused.value.faults) == 4
    with pytest.raises(InputError) as refused:
        plot([tmp_path / "a", tmp_path / "b"])
    assert len(refused.value.faults) == 2
    with pytest.raises(InputError, match="no runs to draw"):
        plot([])


@pytest.mark.tier("all")
@pytest.mark.parametrize(
    ("suffix", "begin"), [(".pdf", b"%PDF"), (".svg", b"<?xml"), (".png", b"\x89PNG"), (".html", b"<!DOCTYPE html>")]
)
def test_the_command_writes_each_format_and_says_what_it_leaves_out(
    suffix: str, begin: bytes, runs: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / f"figure{suffix}"
    assert main(["plot", "accuracy_over_time", "--runs", str(runs), "-o", str(file), "--target", "80%"]) == 0
    assert file.read_bytes().startswith(begin)
    out, said = capfd.readouterr()
    assert out == f"{file}\n"
    assert "Left out: 1 of 4 runs" in said and "(invalid). --allow-invalid draws them." in said


@pytest.mark.tier("all")
def test_the_command_takes_filters_and_refuses_what_it_cannot_do(
    runs: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "figure.svg"
    call = ["plot", "time_to_target", "--runs", str(runs), "-o", str(file)]
    assert main([*call, "compressor=topk,int8"]) == 0
    text = file.read_text()
    assert "topk" in text and "int8" in text and "none" not in re.findall(r">([^<]*)<", text)
    assert main([*call, "--allow-invalid", "verdict=invalid"]) == 0
    for wrong, said in (
        (["--target", "much"], "must be a number such as 0.95, or a percentage"),
        (["compressor=topk", "--band", "sigma"], "sigma"),
        (["verdict=invalid"], "nothing to draw"),
        (["verdict=invalid"], "--all (in Python allow_invalid=True) draws them"),
    ):
        capfd.readouterr()
        assert main([*call, *wrong]) == 2
        assert said in capfd.readouterr().err


@pytest.mark.tier("all")
def test_without_a_file_the_kind_names_it(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["plot", "step_split", "--runs", str(runs)]) == 0
    assert (tmp_path / "step_split.pdf").exists()


@pytest.mark.tier("all")
def test_what_the_page_on_figures_says_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (ROOT / "docs" / "plotting.md").read_text()
    for name in ("topk", "none"):
        run = drawn_run(tmp_path / "runs", "ddp", name, topo="wan1g")
    monkeypatch.chdir(tmp_path)
    commands = [line.partition("#")[0].split()[1:] for line in text.splitlines() if line.startswith("longhaul ")]
    assert [words[0] for words in commands] == ["plot"] * 4 + ["tensorboard"] * 2
    for words in commands:
        given = [run.name if word == "RUN_ID" else word for word in words]
        assert main([*given, "--runs", str(tmp_path / "runs")]) == 0
        written = given[given.index("-o") + 1] if "-o" in given else f"tensorboard/{run.name}"
        assert (tmp_path / written).exists()
    (python,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names: dict[str, object] = {}
    exec(python, names)
    assert isinstance(names["figure"], Figure)
    tags = re.findall(r"^\| `(\w+) ?", text[: text.index("## Seeds")], re.MULTILINE)
    assert tags == list(FIGURE_KINDS)


@pytest.mark.tier("all")
@pytest.mark.chromium
@pytest.mark.timeout(120)
def test_the_page_draws_itself_without_a_network_and_runs_no_script_of_a_record(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    root, file = tmp_path / "runs", tmp_path / "figure.html"
    for name in ("topk", "none"):
        path = drawn_run(root, "ddp", name)
        for part in ("events.jsonl", "summary.json"):
            text = (path / part).read_text()
            (path / part).write_text(text.replace('"accuracy"', f'"accuracy {HOSTILE}"'))
    plot(sorted(root.iterdir()), "accuracy_over_time", file)
    with Chromium(tmp_path / "home") as browser:
        browser.open(file, 700)
        shown = "longhaulPage.drawn"
        drawn = f"new Promise(ok => {{ const look = () => ({shown} ? ok({shown}) : setTimeout(look, 20)); look(); }})"
        assert browser.evaluate(drawn) == 1
        assert browser.complaints == []
        lines = "document.querySelectorAll('.scatterlayer .trace').length"
        before = browser.evaluate(lines)
        buttons = "[...document.querySelectorAll('.plot-legend button')]"
        assert browser.evaluate(f"{buttons}.map(b => b.textContent.trim().slice(1).trim())") == ["none", "topk"]
        browser.evaluate(f"{buttons}[0].focus()")
        browser.call("Input.dispatchKeyEvent", type="keyDown", key=" ", code="Space", text=" ")
        browser.call("Input.dispatchKeyEvent", type="keyUp", key=" ", code="Space")
        assert browser.evaluate(f"{buttons}[0].getAttribute('aria-pressed')") == "false"
        assert browser.evaluate(lines) == before - 1
        assert browser.evaluate("document.documentElement.scrollWidth") <= 700 and browser.complaints == []
