"""Uses every secret of a household, well and badly, and then looks at everything there is."""

from __future__ import annotations

import base64
import json
import os
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

import httpx2
from standardwebhooks import Webhook

from tests.cli.running import until
from tests.security.canaries import Canaries
from tests.security.household import HOSTS, Household

# Prints its secret whole, in two pieces and as JSON, lives long enough to be looked at, and fails.
# The digest shows that it has got what it should.
PROGRAM: Final = """
printf %s "$ONWARD_TOKEN" | sha256sum
echo "token: $ONWARD_TOKEN"
printf %s "$ONWARD_TOKEN" | cut -c1-20 | tr -d '\\n' >&2
sleep 0.3
printf %s "$ONWARD_TOKEN" | cut -c21- >&2
echo "{\\"said\\": \\"$ONWARD_TOKEN\\", \\"user\\": \\"$1\\"}"
exit 3
"""
MASKED: Final = ["token", "quiet"]
# `echo` is what simulated hosts and the node say their parameters back for.
TYPES: Final = {"sim": "echo", "node": "echo", "box": "LOGIN", "server": "LOGIN"}


def use(there: Household) -> None:
    """Use everything, and look at everything."""
    _put_types(there.root)
    paths = {host: _run_job(there, host) for host in HOSTS}
    _use_badly(there)
    _browse(there)
    for host, path in paths.items():
        until(partial(_over, there.ann, path))
        there.evidence.printed[host] = _printed(there.ann, path)
        there.ann.post(f"{path}/retry", json={})
    _look_at_everything(there.root)


def _put_types(root: httpx2.Client) -> None:
    """Types with secrets, one of which says what is run."""
    care = {"needs_approval": True, "read_only": False, "max_retries": 0, "masked": MASKED}
    script = PROGRAM.replace("{", "{{").replace("}", "}}")
    argv = ["sh", "-c", script, "sh", "{user}"]
    types: dict[str, dict[str, Any]] = {
        "LOGIN": {"timeout_s": 30, "argv": argv},
        "echo": {"timeout_s": 30},
        "PARROT": {"timeout_s": 3},
    }
    for name, more in types.items():
        root.put(f"/command-types/{name}", json={**care, **more}).raise_for_status()


def _run_job(there: Household, host: str) -> str:
    """Ask for a job on a host, change it and approve it; returns where it is."""
    canaries = there.evidence.canaries
    params = {
        "user": "ann",
        "token": canaries.make(f"token on {host}"),
        "quiet": canaries.make(f"unprinted secret on {host}"),
    }
    asked = {"command_type": TYPES.get(host, "PARROT"), "selector": [host]}
    there.ann.post("/jobs/plan", json={**asked, "params": params}).raise_for_status()
    first = {**params, "token": canaries.make(f"first token on {host}")}
    body = {**asked, "external_id": host, "params": first}
    answer = there.ann.post("/webhook/jobs", json=body).raise_for_status()
    path = answer.headers["location"]
    there.ann.post("/webhook/jobs", json={**body, "params": params})  # another one: refused
    shown = there.ann.get(path).json()["params"]
    edit = {"params": {**shown, "token": params["token"]}}
    seen = {"If-Match": answer.headers["etag"]}
    there.ann.patch(path, json=edit, headers=seen).raise_for_status()
    seen = {"If-Match": there.bob.get(f"{path}/plan").headers["etag"]}
    there.bob.post(f"{path}/approve", headers=seen, json={}).raise_for_status()
    return str(path)


def _over(client: httpx2.Client, path: str) -> bool:
    return bool(client.get(path).json()["state"] == "FINISHED")


def _printed(client: httpx2.Client, path: str) -> str:
    (execution,) = client.get(f"{path}/executions").json()["items"]
    at = f"/executions/{execution['execution_id']}"
    for what in ("", "/why", "/timeline"):
        client.get(f"{at}{what}").raise_for_status()
    lines = client.get(f"{at}/logs").raise_for_status().json()["items"]
    return "\n".join([*(line["text"] for line in lines), str(execution["error"])])


def _use_badly(there: Household) -> None:
    """Send secrets where they are wrong: none is repeated, and none is written down."""
    canaries, evidence = there.evidence.canaries, there.evidence
    for key in (
        canaries.know("key that nobody has", f"onw_{'canary' * 8}"),
        canaries.make("half of a key") + " x",
    ):
        with evidence.client(there.up, key=key) as stranger:
            stranger.get("/jobs")
    token = {"token": canaries.make("token of no agent"), "nonce": canaries.make("nonce")}
    there.ann.post("/agents/enrol", json=token)
    for wrong in ([canaries.make("in a list")], {canaries.make("as a key"): "x"}):
        params = {"user": "x", "token": wrong}
        body = {"external_id": "bad", "command_type": "LOGIN", "selector": "all"}
        there.ann.post("/webhook/jobs", json={**body, "params": params})
    broken = json.dumps({"params": canaries.make("in half of a body")})[:-3]
    headers = {"Content-Type": "application/json"}
    there.ann.post("/webhook/jobs", content=broken, headers=headers)
    other = f"whsec_{base64.b64encode(os.urandom(32)).decode()}"
    with evidence.client(there.up, key=None) as sender:
        for secret in (canaries.values["webhook secret"], other):
            _send_signed(sender, canaries, secret)


def _browse(there: Household) -> None:
    """Log in with a browser, call with its cookie well and badly, and log out."""
    canaries, address = there.evidence.canaries, there.up.address
    # The one answer that may show the secret of a session is not kept.
    key = {"key": canaries.values["key of ann"]}
    begun = httpx2.post(f"{address}/session", json=key).raise_for_status()
    secret = canaries.know("session of ann", begun.cookies["onward_session"])
    with there.evidence.client(there.up, key=None) as browser:
        page = {"Cookie": f"onward_session={secret}", "X-Onward-Page": "1"}
        browser.get("/me", headers=page).raise_for_status()
        browser.get("/me", headers={"Cookie": page["Cookie"]})
        for wrong in (f"{page['Cookie']}; {page['Cookie']}", f"{page['Cookie']}x"):
            browser.get("/me", headers={**page, "Cookie": wrong})
        browser.post("/session", json={"key": canaries.make("key that logs nobody in")})
        browser.post("/session", json={"key": f" {canaries.values['key of ann']} "})
        browser.delete("/session", headers=page).raise_for_status()
        browser.get("/me", headers=page)


def _send_signed(sender: httpx2.Client, canaries: Canaries, secret: str) -> None:
    number = f"m{len(canaries.planted)}"
    params = {"user": "ann", "token": canaries.make(f"signed token of {number}")}
    body = json.dumps(
        {"external_id": number, "command_type": "LOGIN", "selector": ["box"], "params": params}
    )
    now = datetime.now(UTC)
    headers = {
        "webhook-id": number,
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": Webhook(secret).sign(number, now, body),
        "content-type": "application/json",
    }
    sender.post("/webhook/jobs", content=body, headers=headers)


def _look_at_everything(root: httpx2.Client) -> None:
    """Read every list there is, and whatever is in it."""
    for path in ("/keys", "/hosts", "/blocks", "/agents", "/command-types", "/workers", "/audit"):
        root.get(path).raise_for_status()
    for path, key in (("/jobs", "job_id"), ("/commands", "cmd_id")):
        items: list[dict[str, Any]] = root.get(path).raise_for_status().json()["items"]
        for item in items:
            for below in ("", "/timeline"):
                root.get(f"{path}/{item[key]}{below}").raise_for_status()
    for path in ("/metrics", "/health/live", "/health/ready", "/me", "/openapi.json"):
        root.get(path).raise_for_status()
    root.get("/events/page").raise_for_status()
