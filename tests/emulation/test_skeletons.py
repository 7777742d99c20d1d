"""What `longhaul new` writes, in whole runs as it is."""

from __future__ import annotations

from pathlib import Path

from testbed.orchestrator.cli.main import main
from tests.emulation.support import Longhaul


def test_skeletons_are_run_as_they_are(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    keys = {"compressor": "compressor", "workload": "workload", "topology": "topo"}
    for kind in keys:
        assert main(["new", kind, f"my_{kind}", "--folder", str(tmp_path)]) == 0
    overrides = [f"{key}={tmp_path}/my_{kind}.yaml" for kind, key in keys.items()]
    longhaul = Longhaul(tmp_path / "runs", *overrides, "steps=8")
    assert longhaul.wait() in (0, 5), longhaul.said
    summary = longhaul.summary()
    assert (summary["status"], summary["steps"]) == ("completed", 8)
    assert "-my_topology-ddp-my_compressor-" in longhaul.run.run_id
    assert summary["bytes"]["payload"] > 0
