"""Which variables of the caller reach a script, and what is recorded of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from testbed.orchestrator.config.caller_environment import module_path, passed_on, recorded


@pytest.mark.parametrize(
    "name",
    [
        *(
            "LR",
            "WANDB_MODE",
            "TORCH_LOGS",
            "TZ",
            "LANG",
            "LC_ALL",
            "OMP_NUM_THREADS",
            "PYTHONHASHSEED",
            "CUDA_VISIBLE_DEVICES",
        ),
        *("MANUAL_SEED", "MAKE_PLOTS", "TEMP", "WINDOW_SIZE", "PROMPT", "TERMINATE", "HISTORY", "SESSION", "a.b", "lr"),
    ],
)
def test_what_a_script_may_go_by_is_passed_on(name: str) -> None:
    assert passed_on({name: "1"}) == {name: "1"}


@pytest.mark.parametrize(
    "name",
    [
        *("TERM", "TERM_PROGRAM", "SSH_AUTH_SOCK", "XDG_SESSION_ID", "PWD", "SHLVL", "_", "PATH", "HOME", "PYTHONPATH"),
        *("RANK", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "SLURM_PROCID", "SUDO_USER", "MAKEFLAGS", "LONGHAUL_NODE"),
        *("BASH_FUNC_x%%", "PYTEST_CURRENT_TEST"),
    ],
)
def test_noise_and_what_the_node_sets_itself_are_left_out(name: str) -> None:
    assert passed_on({name: "1", "LR": "2"}) == {"LR": "2"}


def test_variables_of_makes_command_line_are_left_out() -> None:
    flags = r"w -- TOPO=lan ARGS=--epochs\ 2\ LR=3 SET=workload.script=a.py"
    given = {"MAKEFLAGS": flags, "TOPO": "lan", "ARGS": "--epochs 2 LR=3", "SET": "x", "LR": "0.5"}
    assert passed_on(given) == {"LR": "0.5"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(
            ("HF_TOKEN", "x"),
            ("WANDB_API_KEY", "x"),
            ("aws_secret_access_key", "x"),
            ("DB_PASSWORD", "x"),
            ("MYSQL_PWD", "x"),
        ),
        *(("HTTPS_PROXY", "http:" + "//me:word@host:1"), ("LONG", "x" * 5000), ("BYTES", "a\udcff")),
    ],
)
def test_secrets_are_recorded_as_digests(name: str, value: str) -> None:
    (found,) = recorded({name: value}).values()
    assert found.startswith("sha256:") and value not in found
    assert recorded({name: value}) == recorded({name: value}) != recorded({name: f"{value}y"})


def test_other_values_are_recorded_as_they_are() -> None:
    given = {"LR": "0.5", "TEXT": "ä\nb", "EMPTY": "", "KEYBOARD": "de"}
    assert recorded(given) == given


def test_the_module_path_has_each_folder_once_and_not_the_clone(tmp_path: Path) -> None:
    given = os.pathsep.join(["/clone", str(tmp_path), "", "/clone", str(tmp_path), "lib"])
    assert module_path({"PYTHONPATH": given}, "/clone") == [str(tmp_path), os.path.abspath("lib")]
    assert module_path({}, "/clone") == []
