"""What is in `deploy/` and on the page about scale fits the program, down to the seconds."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from typer.testing import CliRunner

from onward.api.resources import RESOURCES
from onward.cli import app
from onward.engines.celery import hands, names
from onward.engines.celery.app import _SOCKET_S, _TICK_S
from onward.fleet import ready, reap
from onward.service import celery_program, listening, probe, supervise
from onward.settings import Settings
from onward.store import workers
from onward.wiring import Onward
from tests.conftest import settings_for
from tests.proof_table import Tried
from tests.reader import page, table

ROOT = Path(__file__).parent.parent
DEPLOY = ROOT / "deploy"
SCALE, FLEET = page("scale.md"), page("fleet.md")
SETTINGS = {f"ONWARD_{name.upper()}" for name in Settings.model_fields}
SPARE_S = 10.0  # for the last reports, and for Celery

UNITS = sorted(DEPLOY.glob("systemd/*.service"))
COMPOSE: Mapping[str, Any] = yaml.safe_load((DEPLOY / "compose/compose.yaml").read_text("utf-8"))
OURS = {
    name: service
    for name, service in COMPOSE["services"].items()
    if service["image"].startswith("onward")
}


def unit(path: Path) -> configparser.RawConfigParser:
    """Read a unit: settings that may occur several times are joined by a space."""

    class Many(dict[str, Any]):
        def __setitem__(self, key: str, value: Any) -> None:
            if isinstance(value, list) and key in self:
                value = [*self[key], *value]
            super().__setitem__(key, value)

    parser = configparser.RawConfigParser(dict_type=Many, strict=False)
    parser.optionxform = str  # type: ignore[assignment, method-assign]  # as its documentation says
    parser.read_string(path.read_text("utf-8"))
    return parser


def manifests() -> Iterator[Mapping[str, Any]]:
    for path in sorted(DEPLOY.glob("kubernetes/*/*.yaml")):
        yield from yaml.safe_load_all(path.read_text("utf-8"))


def of_kind(kind: str) -> dict[str, Mapping[str, Any]]:
    return {each["metadata"]["name"]: each for each in manifests() if each["kind"] == kind}


PODS = {name: each["spec"]["template"]["spec"] for name, each in of_kind("Deployment").items()}
CONTAINERS = [
    (name, container)
    for name, pod in PODS.items()
    for container in (*pod.get("initContainers", ()), *pod["containers"])
]


def commands() -> Iterator[tuple[str, Sequence[str]]]:
    """Every command of ours that something in `deploy/` runs, and who does."""
    for path in UNITS:
        program, *arguments = unit(path)["Service"]["ExecStart"].split()
        assert program.endswith("/bin/onward")
        yield path.name, arguments
    for name, service in OURS.items():
        yield name, service["command"]
        match service.get("healthcheck", {}).get("test"):
            case ["CMD", "onward", *arguments]:
                yield f"{name}, its check", arguments
    for name, container in CONTAINERS:
        yield name, container["args"]
        for each in ("startupProbe", "livenessProbe", "readinessProbe"):
            match container.get(each, {}).get("exec", {}).get("command"):
                case ["onward", *arguments]:
                    yield f"{name}, {each}", arguments


def test_every_command_that_is_run_is_there(tried: Tried):
    root = typer.main.get_command(app)
    found = [(who, [re.sub(r"\$\{.*\}", "2", word) for word in given]) for who, given in commands()]
    for who, given in found:
        command, rest = root, list(given)
        while isinstance(command, typer.core.TyperGroup):
            assert rest[0] in command.commands, f"{who} runs `onward {' '.join(given)}`"
            command = command.commands[rest.pop(0)]
        # It refuses an option that the command has not, and a value that is none.
        command.make_context(who, rest)
    assert {given[0] for _, given in found} == {"api", "worker", "beat", "db", "agent"}
    tried("commands that deploy/ runs", len(found), "all there")


def files() -> Iterator[Path]:
    yield from (path for path in DEPLOY.rglob("*") if path.is_file() and path.suffix != ".pyc")


def test_every_variable_is_a_setting():
    for path in (*files(), ROOT / "docs/scale.md"):
        named = set(re.findall(r"\bONWARD_[A-Z_]+", path.read_text("utf-8")))
        assert named <= SETTINGS, f"{path.name} names {named - SETTINGS}"


def test_no_secret_and_no_place_of_one_machine_is_in_a_file():
    for path in files():
        text = path.read_text("utf-8")
        assert not re.search(
            r"/(work|home|root|Users)/|index-url|https?://(?!127\.0\.0\.1|api:|\$\(POD_IP\))", text
        )
        assert not re.search(r"whsec_\w|-----BEGIN|://\w+:(?!\$\{)[^@\s]+@", text), path.name
    for example in (DEPLOY / "compose/.env.example", DEPLOY / "systemd/onward.env.example"):
        for line in example.read_text("utf-8").splitlines():
            name, _, value = line.lstrip("#").partition("=")
            if name.isupper() and re.search("PASSWORD|KEY|SECRET|URL", name):
                assert not value, f"{example.name} has a value for {name}"
    assert not of_kind("Secret")


def test_who_holds_a_secret_in_kubernetes_has_it_by_reference():
    secret = {"ONWARD_DATABASE_URL", "ONWARD_REDIS_URL", "ONWARD_BROKER_URL"}
    secret |= {"ONWARD_ADMIN_KEY", "ONWARD_WEBHOOK_SECRETS"}
    secret |= {"ONWARD_MASTER_KEY", "ONWARD_MQTT_URL"}
    assert not secret & set(of_kind("ConfigMap")["onward"]["data"])
    for name, container in CONTAINERS:
        for variable in container["env"]:
            if variable["name"] in secret:
                assert "value" not in variable, name
                assert variable["valueFrom"]["secretKeyRef"]["name"] == "onward"
            else:
                assert variable["name"] in {"POD_IP", "ONWARD_HUB_URL"}, name


def test_settings_in_the_manifests_are_taken(monkeypatch: pytest.MonkeyPatch):
    """Each has a value that the program takes, as it would be in its environment."""
    given = [of_kind("ConfigMap")["onward"]["data"]]
    given += [service["environment"] for service in OURS.values()]
    for environment in given:
        with monkeypatch.context() as patched:
            for name, value in environment.items():
                assert isinstance(value, str), f"{name} is not a text to YAML"
                patched.setenv(name, value)
            Settings()


# Where the API is, and who asks it


def paths() -> set[str]:
    return {route.path for router in RESOURCES for route in router.routes}  # type: ignore[attr-defined]  # all are routes


def test_probes_ask_the_api_where_it_answers():
    port = Settings().port
    (api,) = PODS["onward-api"]["containers"]
    assert [each["containerPort"] for each in api["ports"]] == [port]
    for each in ("startupProbe", "livenessProbe", "readinessProbe"):
        asked = api[each]["httpGet"]
        assert asked["port"] == api["ports"][0]["name"]
        assert asked["path"].partition("?")[0] in paths()
    assert api["livenessProbe"]["httpGet"]["path"] == "/health/live", "it asks no database"
    assert api["readinessProbe"]["httpGet"]["path"].endswith("?api_only=true")
    data = of_kind("ConfigMap")["onward"]["data"]
    assert int(data["ONWARD_PORT"]) == port
    (service,) = of_kind("Service").values()
    assert service["spec"]["ports"][0]["targetPort"] == api["ports"][0]["name"]


def test_the_container_of_the_api_is_asked_where_it_answers():
    api = OURS["api"]
    (asked,) = re.findall(
        r"http://127\.0\.0\.1:(\d+)(/[a-z/]+)", " ".join(api["healthcheck"]["test"])
    )
    assert asked[0] == api["environment"]["ONWARD_PORT"] == str(Settings().port)
    assert asked[1] in paths()
    assert api["ports"][0].endswith(f":{asked[0]}")
    assert f"EXPOSE {asked[0]}\n" in (DEPLOY / "compose/Dockerfile").read_text("utf-8")


# How they leave


def seconds(text: str) -> float:
    number, letter = re.fullmatch(r"(\d+)(s|m)?", text).groups()  # type: ignore[union-attr]  # else it fails
    return float(number) * (60 if letter == "m" else 1)


def test_whoever_stops_a_worker_waits_for_longer_than_it_drains():
    worker = unit(DEPLOY / "systemd/onward-worker@.service")["Service"]
    (drain,) = re.findall(
        r"ONWARD_DRAIN_S=(\d+)", (DEPLOY / "systemd/onward-worker@.service").read_text("utf-8")
    )
    pod = PODS["onward-worker"]
    waits = {
        "systemd": (float(drain), seconds(worker["TimeoutStopSec"])),
        "compose": (
            float(OURS["worker"]["environment"]["ONWARD_DRAIN_S"]),
            seconds(OURS["worker"]["stop_grace_period"]),
        ),
        "kubernetes": (
            float(of_kind("ConfigMap")["onward"]["data"]["ONWARD_DRAIN_S"]),
            float(pod["terminationGracePeriodSeconds"]),
        ),
    }
    for who, (drains_s, waits_s) in waits.items():
        assert waits_s >= hands._PATIENCE_S + drains_s + SPARE_S, who
    assert "a drain of 30 s and wait for 90 s" in SCALE
    assert set(waits.values()) == {(30.0, 90.0)}


def test_whoever_stops_an_api_waits_for_its_last_answers():
    api, pod = unit(DEPLOY / "systemd/onward-api.service")["Service"], PODS["onward-api"]
    slept = float(pod["containers"][0]["lifecycle"]["preStop"]["exec"]["command"][1])
    waits = [seconds(api["TimeoutStopSec"]), seconds(OURS["api"]["stop_grace_period"])]
    waits.append(pod["terminationGracePeriodSeconds"] - slept)
    assert min(waits) >= listening._PATIENCE_S + SPARE_S


# systemd


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_a_unit_starts_again_drains_and_may_do_little(path: Path):
    service = unit(path)["Service"]
    wanted = {"Restart": "always", "KillMode": "mixed", "DynamicUser": "yes"}
    wanted |= {"NoNewPrivileges": "yes", "ProtectSystem": "strict", "PrivateTmp": "yes"}
    wanted |= {"CapabilityBoundingSet": "", "MemoryDenyWriteExecute": "yes"}
    assert wanted.items() <= dict(service).items()
    assert service["EnvironmentFile"].startswith(("/etc/onward/", "-/etc/onward/"))
    assert int(service["LimitNOFILE"]) >= 1024
    assert unit(path)["Unit"]["StartLimitIntervalSec"] == "0"


@pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="not run: needs systemd-analyze"
)
@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_systemd_takes_a_unit(path: Path, tmp_path: Path):
    there = path.read_text("utf-8").replace("/opt/onward/bin/onward", shutil.which("true") or "")
    (tmp_path / path.name).write_text(there, "utf-8")
    said = subprocess.run(
        ["systemd-analyze", "verify", "--recursive-errors=no", tmp_path / path.name],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    # Whatever it does not know it tells, and takes the unit all the same.
    told = [line for line in said.stderr.splitlines() if path.name in line]
    assert (said.returncode, told) == (0, [])


# Compose and Kubernetes


def test_containers_may_do_little():
    for name, service in OURS.items():
        assert service["read_only"], name
        assert service["cap_drop"] == ["ALL"], name
    for name, container in CONTAINERS:
        context = container["securityContext"]
        assert context["readOnlyRootFilesystem"], name
        assert not context["allowPrivilegeEscalation"], name
        assert context["capabilities"] == {"drop": ["ALL"]}, name
        assert {"cpu", "memory"} <= container["resources"]["requests"].keys(), name
        assert "memory" in container["resources"]["limits"], name
    for name, pod in PODS.items():
        assert pod["securityContext"]["runAsNonRoot"], name
        dockerfile = (DEPLOY / "compose/Dockerfile").read_text("utf-8")
        user = pod["securityContext"]["runAsUser"]
        assert f"\nUSER {user}:{user}\n" in dockerfile
        written = {volume["name"] for volume in pod["volumes"]}
        mounted = {mount["name"] for each in pod["containers"] for mount in each["volumeMounts"]}
        assert written == mounted, name


def test_servers_are_set_up_as_the_page_says():
    valkey = COMPOSE["services"]["valkey"]["command"]
    assert valkey[valkey.index("--maxmemory-policy") + 1] == "noeviction"
    postgres = dict(
        word.removeprefix("--").split("=")
        for word in COMPOSE["services"]["postgres"]["command"]
        if "=" in word
    )
    room = int(postgres["max_connections"]) * int(postgres["max_locks_per_transaction"])
    # With the three workers that the file speaks of, of two processes each.
    assert room >= 2 * 6 * Settings().worker_capacity
    assert {"fsync", "full_page_writes", "synchronous_commit"}.isdisjoint(postgres)
    assert COMPOSE["services"]["postgres"]["volumes"][0].partition(":")[0] in COMPOSE["volumes"]


def test_no_api_leaves_before_another_answers():
    rolling = of_kind("Deployment")["onward-api"]["spec"]["strategy"]["rollingUpdate"]
    assert rolling["maxUnavailable"] == 0
    budgets = of_kind("PodDisruptionBudget")
    assert set(budgets) == {"onward-api", "onward-worker"}
    for name, each in of_kind("Deployment").items():
        labels = each["spec"]["template"]["metadata"]["labels"]
        assert each["spec"]["selector"]["matchLabels"].items() <= labels.items()
        if name in budgets:
            assert budgets[name]["spec"]["selector"]["matchLabels"].items() <= labels.items()


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="not run: needs kubectl")
def test_kustomize_takes_the_base_and_what_scales_it(tmp_path: Path):
    shutil.copytree(DEPLOY / "kubernetes", tmp_path / "kubernetes")
    own = tmp_path / "kubernetes/own"
    own.mkdir()
    own.joinpath("kustomization.yaml").write_text(
        "resources: [../base]\ncomponents: [../autoscale]\n", "utf-8"
    )
    for folder, kept in (("base", True), ("own", False)):
        said = subprocess.run(
            ["kubectl", "kustomize", tmp_path / "kubernetes" / folder],
            check=True,
            capture_output=True,
            text=True,
            timeout=60,
        )
        (worker,) = (
            each
            for each in yaml.safe_load_all(said.stdout)
            if each["kind"] == "Deployment" and each["metadata"]["name"] == "onward-worker"
        )
        assert ("replicas" in worker["spec"]) is kept


# The page


def test_the_seconds_on_the_page_are_those_of_the_program():
    settings = Settings()
    told = {row[0]: " ".join(row[1:]) for row in table(SCALE, "part", "what stops")}
    expected = {
        "a process of a worker": (settings.worker_lost_after_s, reap._BATCH),
        "Celery's main process of a worker": (supervise._PAUSE_S,),
        "the main process of a worker": (celery_program._HURRY_S,),
        "a worker that lives and takes no messages": (
            celery_program._SILENT_S,
            supervise._PAUSE_S,
        ),
        "a machine, or its network": (settings.worker_lost_after_s,),
        "Beat": (hands._BESIDE_BEAT_S, supervise._PAUSE_S),
        "the broker": (hands._WALK, hands._WAITING_MAX),
        "the broker's memory": (_SOCKET_S,),
    }
    for part, figures in expected.items():
        found = re.findall(r"\d[\d,]*", told[part])
        assert found == [f"{figure:,.0f}" for figure in figures], part
    assert _TICK_S == 1.0, "the page says every second"
    assert f"has got on within {ready.STUCK_AFTER_S:g} s" in SCALE
    assert f"names up to {names.SHARD} executions" in SCALE
    assert f"the names of {['five'][len(names.TASKS) - 5]} tasks" in SCALE
    assert f"`{names.RUNS}` and `{names.CARE}`" in SCALE
    assert table(SCALE, "what it may wait for")[0][1] == f"{hands._PATIENCE_S:g}"
    assert f"last answers for up to {listening._PATIENCE_S} s" in SCALE


def test_the_sums_of_connections_and_locks_on_the_page_are_right():
    settings = Settings()
    api, worker = settings.pool_size + settings.matchers + 1, settings.pool_size + 1
    listed = {row[0]: row[2] for row in table(SCALE, "process", "connections")}
    assert listed["an API"] == str(api)
    assert listed["each process of a worker"] == str(worker)
    assert listed["onward up"] == str(api + worker)
    for row in table(SCALE, "APIs", "processes of workers"):
        apis, processes, connections, locks, most, each = (int(c.replace(",", "")) for c in row)
        assert connections == apis * api + processes * worker
        assert locks == processes * settings.worker_capacity
        assert most >= connections + api + 2 * worker + 20, "one of each is replaced"
        assert most * each >= 2 * locks


def test_the_settings_that_a_pooler_must_not_lose_are_all_named():
    from onward.store.database import _SESSION, _WALKING  # noqa: PLC0415 - beside its one use

    (ignored,) = re.findall(r"^ignore_startup_parameters = (.+)$", SCALE, re.MULTILINE)
    # These two it tracks by itself.
    assert set(ignored.split(",")) == {*_SESSION, *_WALKING} - {"application_name", "timezone"}
    for name in {*_SESSION, *_WALKING} - {"application_name"}:
        assert re.search(rf"^ALTER .* SET {name} = ", SCALE, re.MULTILINE), name


def test_the_metrics_of_the_alerts_are_there():
    known = {row[0] for row in table(FLEET, "metric", "what it counts")}
    named = set(re.findall(r"`(onward_[a-z_]+)", SCALE[SCALE.index("## Monitoring") :]))
    assert {name.removesuffix("_total") for name in named} <= known


def test_what_the_page_calls_a_line_of_the_log_is_one():
    (line,) = re.findall(r"^In the logs: (.+)\.$", SCALE, re.MULTILINE)
    sources = "".join(path.read_text("utf-8") for path in (ROOT / "src/onward").rglob("*.py"))
    for event in re.findall("`([a-z_]+)`", line):
        assert f'"{event}"' in sources, event


def test_the_command_that_measures_what_an_execution_costs_prints_it():
    said = subprocess.run(
        [sys.executable, DEPLOY / "measure.py", "300"],
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    rows = {line.split()[0]: line.split()[1:] for line in said.stdout.splitlines()}
    assert rows["executions"][0] == rows["execution_logs"][0] == "1.00"
    assert rows["execution_timeline"][0] == "3.00"
    assert {"hosts", "WAL"} <= rows.keys()
    for what in ("Python", "PostgreSQL"):
        assert re.search(rf"^processor, {what} +\d+ us$", said.stdout, re.MULTILINE)


# A worker that is asked whether it gets on


async def test_a_worker_that_breathes_and_gets_on_is_left_alone(opened: Onward):
    pool, settings = opened.commands.pool, opened.settings
    found = await probe.look(settings, "runner-1")
    assert found == (False, "No worker breathes on runner-1.")
    worker_id = await workers.register(pool, "runner-1:4711")
    assert await probe.look(settings, "runner-1") == (True, "1 of 1 get on.")
    assert not (await probe.look(settings, "runner")).holds, "it is another machine's"
    await workers.leave(pool, worker_id)
    assert not (await probe.look(settings, "runner-1")).holds


async def test_a_worker_that_breathes_and_does_not_get_on_is_told(opened: Onward):
    pool, settings = opened.commands.pool, opened.settings
    stuck = await workers.register(pool, "runner-1:1")
    await workers.beat(pool, stuck, still_s=ready.STUCK_AFTER_S + 1)
    found = await probe.look(settings, "runner-1")
    assert found == (False, "No worker on runner-1 has got on for 30 s, though 1 breathe.")
    # One process of several that hangs is Celery's business, as long as another gets on.
    await workers.register(pool, "runner-1:2")
    assert await probe.look(settings, "runner-1") == (True, "1 of 2 get on.")


async def test_a_worker_that_has_stopped_breathing_is_told(opened: Onward):
    pool, settings = opened.commands.pool, opened.settings
    worker_id = await workers.register(pool, "runner-1:1")
    await pool.execute(
        "UPDATE workers SET beat_at = now() - make_interval(secs => $2) WHERE id = $1",
        worker_id,
        settings.worker_lost_after_s + 1,
    )
    assert not (await probe.look(settings, "runner-1")).holds


async def test_a_database_that_is_away_speaks_against_no_worker():
    found = await probe.look(settings_for("postgresql://nobody@127.0.0.1:1/onward"), "runner-1")
    assert found.holds
    assert "does not answer" in found.told


def test_the_check_of_a_worker_says_it_with_its_exit_code(
    database_url: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("ONWARD_DATABASE_URL", database_url)
    said = CliRunner().invoke(app, ["worker", "--check"])
    assert said.exit_code == 1
    assert said.stderr.startswith("No worker breathes on ")
    assert len(said.stderr.splitlines()) == 1


def test_the_check_of_a_worker_starts_none():
    """It is asked for by many, often: it must not load what only a worker needs."""
    code = "import sys, onward.service.probe; sys.exit('celery' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
