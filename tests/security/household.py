"""A service with a secret in every place that takes one, and hosts that give theirs away.

Everything is real and in processes of its own: the service, an agent, an sshd, a broker and a node
behind it; only the platform is ours, and repeats whatever it is sent.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote

import httpx2

from onward.channels.keyring import KeyRing
from tests.channels.ssh.sshd import asyncssh_server, installed, prepared, sshd
from tests.cli.running import BOUND_S, Up, environment, onward_up, until
from tests.security.canaries import Canaries

PLATFORMS = """
[parrot]
url = "{url}/refusing"
insecure = true
private = true
task_id = "/id"
[parrot.headers]
Authorization = "env:PARROT_TOKEN"
[parrot.body]
id = "{{cmd_id}}"
params = "{{params}}"

[magpie]
url = "{url}/broken"
insecure = true
private = true
task_id = "/id"
[magpie.headers]
Authorization = "env:PARROT_TOKEN"
[magpie.body]
params = "{{params}}"
"""
# Hosts, and the way to each.
HOSTS = {
    "sim": ("simulated", ""),
    "box": ("agent", ""),
    "server": ("ssh", "to be filled in"),
    "node": ("mqtt", ""),
    "parrot": ("platform", "parrot/d1"),
    "magpie": ("platform", "magpie/d1"),
}


@dataclass(slots=True)
class Evidence:
    """Everything that anybody could read, by where it was."""

    canaries: Canaries
    folder: Path
    database_url: str
    logs: dict[str, Path] = field(default_factory=dict)
    answers: list[tuple[str, str]] = field(default_factory=list)
    arguments: set[str] = field(default_factory=set)
    heard: list[str] = field(default_factory=list)  # by the platforms, which have to hear it
    printed: dict[str, str] = field(default_factory=dict)  # by each host, as the API tells it

    @property
    def agent(self) -> Path:
        """What the agent keeps."""
        return self.folder / "agent"

    def client(self, up: Up, *, key: str | None) -> httpx2.Client:
        """Call the service with a key, and keep what it answers."""
        return httpx2.Client(
            base_url=up.address,
            headers={"Authorization": f"Bearer {key}"} if key else {},
            timeout=BOUND_S,
            event_hooks={"response": [self._keep]},
        )

    def _keep(self, answer: httpx2.Response) -> None:
        answer.read()
        told = f"{answer.headers}\n{answer.text}"
        self.answers.append((f"{answer.request.method} {answer.request.url.path}", told))


@dataclass(frozen=True, slots=True)
class Household:
    """The service, and who may call it how."""

    evidence: Evidence
    up: Up
    admin: httpx2.Client  # whose answers may show what is shown once
    root: httpx2.Client
    ann: httpx2.Client  # an operator
    bob: httpx2.Client  # an approver


@contextmanager
def household(evidence: Evidence, broker: int) -> Iterator[Household]:
    """Run the service and all its hosts; the broker at this port comes later."""
    with ExitStack() as stack:
        ssh = stack.enter_context(_ssh_server(evidence))
        parrot = stack.enter_context(_parrot(evidence))
        up = stack.enter_context(_service(evidence, parrot, broker))
        canaries = evidence.canaries
        key = canaries.values["admin key"]
        headers = {"Authorization": f"Bearer {key}"}
        admin = httpx2.Client(base_url=up.address, headers=headers, timeout=BOUND_S)
        stack.enter_context(admin)
        _make_hosts(admin, ssh)
        people = {
            name: evidence.client(up, key=_key_of(admin, canaries, name, role))
            for name, role in (("ann", "operator"), ("bob", "approver"))
        }
        root = evidence.client(up, key=key)
        for client in (root, *people.values()):
            stack.enter_context(client)
        stack.enter_context(_agent(evidence, up, admin))
        stack.enter_context(_node(evidence, admin, broker))
        yield Household(evidence, up, admin, root, **people)


@contextmanager
def _service(evidence: Evidence, platforms: str, broker: int) -> Iterator[Up]:
    """Run `onward up` with a secret in every setting that takes one."""
    canaries, folder = evidence.canaries, evidence.folder
    (folder / "platforms.toml").write_text(PLATFORMS.format(url=platforms), "utf-8")
    webhooks = base64.b64encode(canaries.make("webhook key").encode()).decode()
    password = quote(canaries.make("password of the database"), safe="")
    settings = {
        # Whoever is trusted anyhow may bring a password, too.
        "ONWARD_DATABASE_URL": evidence.database_url.replace("@", f":{password}@", 1),
        "ONWARD_REQUIRE_DURABLE": "false",
        "ONWARD_ADMIN_KEY": canaries.make("admin key"),
        "ONWARD_MASTER_KEY": canaries.make("master key"),
        "ONWARD_WEBHOOK_SECRETS": canaries.know("webhook secret", f"whsec_{webhooks}"),
        "ONWARD_MQTT_URL": _broker_url(canaries, broker),
        "ONWARD_SSH_DIR": str(folder / "client"),
        "ONWARD_PLATFORMS": str(folder / "platforms.toml"),
        "PARROT_TOKEN": canaries.make("header of the platform", before="Bearer "),
    }
    with onward_up(folder, "--access-log", **settings) as up:
        evidence.logs |= {"service": up.log, "what it says": folder / "said"}
        (folder / "said").write_text(up.said, "utf-8")
        yield up


def _broker_url(canaries: Canaries, port: int) -> str:
    password = quote(canaries.values["password of the broker"], safe="")
    return f"mqtt://onward:{password}@127.0.0.1:{port}"


def _make_hosts(admin: httpx2.Client, ssh: str) -> None:
    for name, (channel, address) in HOSTS.items():
        place = ssh if channel == "ssh" else address
        host = {"name": name, "channel": channel, "address": place}
        admin.post("/hosts", json=host).raise_for_status()


def _key_of(admin: httpx2.Client, canaries: Canaries, person: str, role: str) -> str:
    body = {"name": f"{person}'s", "person": person, "role": role}
    made = admin.post("/keys", json=body).raise_for_status().json()
    return canaries.know(f"key of {person}", made["key"])


def host_ids(admin: httpx2.Client) -> dict[str, int]:
    """The ids of all hosts by their names."""
    items = admin.get("/hosts").raise_for_status().json()["items"]
    return {each["name"]: each["host_id"] for each in items}


@contextmanager
def _agent(evidence: Evidence, up: Up, admin: httpx2.Client) -> Iterator[None]:
    """Run the agent of a host, as whoever runs these tests, and wait until it has called."""
    host_id, canaries = host_ids(admin)["box"], evidence.canaries
    made = admin.post(f"/hosts/{host_id}/enrolment", json={}).raise_for_status().json()
    token = canaries.know("token of the agent", made["token"])
    master = canaries.values["master key"].encode()
    canaries.know_bytes("key of the agent", KeyRing(master).agent_key(host_id, 1))
    command = ["onward", "agent", "--server", up.address, "--state", str(evidence.agent)]
    root = ["--allow-root"] if os.geteuid() == 0 else []
    with _process(evidence, "agent", *command, *root, ONWARD_AGENT_TOKEN=token):
        until(lambda: any(each["connected"] for each in admin.get("/agents").json()["items"]))
        yield


@contextmanager
def _node(evidence: Evidence, admin: httpx2.Client, broker: int) -> Iterator[None]:
    """Run the node of a host. Its `echo` says back what it was told."""
    made = admin.post(f"/hosts/{host_ids(admin)['node']}/key").raise_for_status().json()
    evidence.canaries.know_bytes("key of the node", bytes.fromhex(made["key"]))
    key, journal = evidence.folder / "node-key", evidence.folder / "node-journal"
    key.write_text(made["key"])
    command = ["onward.channels.mqtt.node", "--name", "node", "--key-file", str(key)]
    url = _broker_url(evidence.canaries, broker)
    with _process(evidence, "node", *command, "--journal", str(journal), ONWARD_MQTT_URL=url):
        yield


@contextmanager
def _process(evidence: Evidence, name: str, *command: str, **settings: str) -> Iterator[None]:
    """Run a module of ours in a process of its own; what it says goes to its log."""
    evidence.logs[name] = evidence.folder / f"{name}.log"
    with (
        evidence.logs[name].open("wb") as log,
        subprocess.Popen(
            [sys.executable, "-m", *command],
            stdout=log,
            stderr=log,
            env=environment(evidence.folder, **settings),
        ) as process,
    ):
        try:
            yield
        finally:
            process.terminate()
            process.wait(BOUND_S)


@contextmanager
def _ssh_server(evidence: Evidence) -> Iterator[str]:
    """An sshd, or asyncssh's own server where there is none; returns the address of the host."""
    folder = prepared(evidence.folder)
    with (sshd if installed else asyncssh_server)(folder) as server:
        yield server.address


@contextmanager
def _parrot(evidence: Evidence) -> Iterator[str]:
    """Platforms that say back whatever they are sent: one in a refusal, one in a broken answer."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"])).decode()
            evidence.heard.append(f"{self.headers}{body}")
            if self.path == "/refusing":
                self._refuse(str(self.headers), body)
            else:
                self.wfile.write(f"{self.headers['Authorization']} {body}\r\n\r\n".encode())
                self.close_connection = True

        def _refuse(self, headers: str, body: str) -> None:
            told = json.dumps({"error": f"no: {headers}", "message": body}).encode()
            self.send_response(400, f"no {self.headers['Authorization']}")
            self.send_header("Content-Length", str(len(told)))
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(told)

        def log_message(self, *_: object) -> None:
            """Say nothing: this is no part of the service."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
