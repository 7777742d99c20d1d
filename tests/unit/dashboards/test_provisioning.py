"""How both Prometheus servers and Grafana are set up. None of these was ever started with Grafana itself here."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed.core.record.metrics import METRICS
from testbed.orchestrator.observation.verdict.machine_rules import IDLE_SUSPECT
from tests.unit.dashboards.promtool import promtool

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "dashboards"
COMPOSE: dict[str, Any] = yaml.safe_load((FOLDER / "docker-compose.yml").read_text())
SOURCES: dict[str, Any] = yaml.safe_load((FOLDER / "provisioning/datasources/prometheus.yml").read_text())
PROVIDERS: dict[str, Any] = yaml.safe_load((FOLDER / "provisioning/dashboards/longhaul.yml").read_text())
LIVE: dict[str, Any] = yaml.safe_load((FOLDER / "prometheus/live.yml").read_text())
ALERTS: dict[str, Any] = yaml.safe_load((FOLDER / "prometheus/alerts.yml").read_text())


@pytest.mark.parametrize("name", ["live.yml", "archive.yml"])
def test_prometheus_accepts_its_configuration(name: str) -> None:
    found = promtool("check", "config", str(FOLDER / "prometheus" / name))
    assert found.returncode == 0, found.stdout + found.stderr


def test_alerts_fire_when_they_should_and_not_before() -> None:
    found = promtool("test", "rules", str(FOLDER / "prometheus/alerts_test.yml"))
    assert found.returncode == 0, found.stdout + found.stderr


def test_an_alert_that_does_not_fire_is_found(tmp_path: Path) -> None:
    """The alerts' own test fails where an alert is weakened."""
    weakened = (FOLDER / "prometheus/alerts.yml").read_text().replace('verdict="invalid"', 'verdict="valid"')
    (tmp_path / "alerts.yml").write_text(weakened)
    (tmp_path / "alerts_test.yml").write_text((FOLDER / "prometheus/alerts_test.yml").read_text())
    assert promtool("test", "rules", str(tmp_path / "alerts_test.yml")).returncode != 0


def test_alerts_read_metrics_that_exist() -> None:
    known = {metric.series for metric in METRICS.values()}
    exprs = [rule["expr"] for group in ALERTS["groups"] for rule in group["rules"]]
    assert len(exprs) >= 3
    assert {name for expr in exprs for name in re.findall(r"\blonghaul_\w+", expr)} <= known


def test_the_alert_on_cores_has_the_verdict_s_limit() -> None:
    rules = {rule["alert"]: rule for group in ALERTS["groups"] for rule in group["rules"]}
    assert rules["LonghaulCoresSaturated"]["expr"].strip().endswith(f"< {IDLE_SUSPECT:g}")


def test_the_live_server_scrapes_the_exporter_each_second() -> None:
    (job,) = LIVE["scrape_configs"]
    assert job["honor_labels"]
    assert job["static_configs"] == [{"targets": ["127.0.0.1:9464"]}]
    assert LIVE["global"]["scrape_interval"] == "1s"


def test_the_archive_scrapes_nothing() -> None:
    assert "scrape_configs" not in yaml.safe_load((FOLDER / "prometheus/archive.yml").read_text())


def test_data_sources_are_two_servers_on_loopback_with_samples_a_second_apart() -> None:
    sources = {source["uid"]: source for source in SOURCES["datasources"]}
    assert {uid: source["url"] for uid, source in sources.items()} == {
        "longhaul-archive": "http://127.0.0.1:9091",
        "longhaul-live": "http://127.0.0.1:9090",
    }
    assert all(source["jsonData"]["timeInterval"] == "1s" for source in sources.values())
    assert all(source["jsonData"]["httpMethod"] == "POST" for source in sources.values())
    assert [uid for uid, source in sources.items() if source.get("isDefault")] == ["longhaul-archive"]


def test_dashboards_are_read_only_and_where_compose_puts_them() -> None:
    (provider,) = PROVIDERS["providers"]
    assert provider["disableDeletion"] and not provider["allowUiUpdates"]
    target = provider["options"]["path"]
    assert f"./grafana:{target}:ro" in COMPOSE["services"]["grafana"]["volumes"]


def test_images_are_pinned() -> None:
    for name, service in COMPOSE["services"].items():
        assert re.fullmatch(r"[\w./-]+:v?\d+\.\d+\.\d+", service["image"]), name


def test_services_listen_on_loopback_alone() -> None:
    services = COMPOSE["services"]
    assert all(service["network_mode"] == "host" and "ports" not in service for service in services.values())
    for name, port in (("archive", 9091), ("live", 9090)):
        assert f"--web.listen-address=127.0.0.1:{port}" in " ".join(services[name]["command"])
    assert services["grafana"]["environment"]["GF_SERVER_HTTP_ADDR"] == "127.0.0.1"


def test_the_archive_keeps_its_blocks_and_forgets_a_run_when_it_ends() -> None:
    command = " ".join(COMPOSE["services"]["archive"]["command"])
    assert "--storage.tsdb.retention.time=100y" in command
    assert "--query.lookback-delta=5s" in command


def test_grafana_does_not_call_home() -> None:
    environment = COMPOSE["services"]["grafana"]["environment"]
    off = (
        "ANALYTICS_REPORTING_ENABLED",
        "ANALYTICS_CHECK_FOR_UPDATES",
        "ANALYTICS_CHECK_FOR_PLUGIN_UPDATES",
        "NEWS_NEWS_FEED_ENABLED",
        "PLUGINS_PREINSTALL_AUTO_UPDATE",
    )
    assert {environment[f"GF_{name}"] for name in off} == {"false"}
    assert environment["GF_PLUGINS_PREINSTALL_DISABLED"] == "true"


def test_whoever_looks_may_look_only() -> None:
    environment = COMPOSE["services"]["grafana"]["environment"]
    assert environment["GF_AUTH_ANONYMOUS_ENABLED"] == "true"
    assert environment["GF_AUTH_ANONYMOUS_ORG_ROLE"] == "Viewer"
    home = environment["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert (FOLDER / "grafana" / Path(home).name).exists()


def test_every_service_says_when_it_is_ready() -> None:
    tests = {name: service["healthcheck"]["test"][-1] for name, service in COMPOSE["services"].items()}
    assert tests == {
        "archive": "http://127.0.0.1:9091/-/ready",
        "live": "http://127.0.0.1:9090/-/ready",
        "grafana": "http://127.0.0.1:3000/api/health",
    }
