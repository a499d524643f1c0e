"""What every request goes through: who may, what goes wrong, what every answer carries."""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
from collections.abc import Iterator

import httpx2
import pytest
import structlog
from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute
from starlette.routing import WebSocketRoute

import onward
from onward.api.app import create_app
from onward.api.permissions import GRANTS, Permission, Role, needs
from onward.api.problems import PROBLEMS, of_error
from onward.api.routing import Route, router
from onward.api.services import Calling, Services
from onward.errors import HostBusy, InvalidInput, InvariantBroken, OnwardError, ServerProblem
from onward.wiring import Onward
from tests.api.conftest import SECRET, KeyFor, calling

UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}").fullmatch
MEMBERS = {"type", "title", "status", "detail", "instance", "code", "request_id"}


@pytest.fixture(scope="module")
def opened(shared: Onward) -> Onward:
    """Nothing here minds what another test has left behind."""
    return shared


def told(answer: httpx2.Response, status: int, code: str) -> dict[str, object]:
    """The problem that an answer is; it is of this kind, and whole."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem: dict[str, object] = answer.json()
    assert problem.keys() >= MEMBERS
    assert (problem["status"], problem["code"]) == (status, code)
    assert problem["type"] == f"urn:onward:problem:{code}"
    assert problem["request_id"] == answer.headers["x-request-id"]
    assert problem["instance"] == f"urn:onward:request:{problem['request_id']}"
    return problem


# Who may


def everything_below(error: type[OnwardError]) -> Iterator[type[OnwardError]]:
    yield error
    for below in error.__subclasses__():
        yield from everything_below(below)


def address(route: Route) -> str:
    return re.sub(r"\{[^}]+\}", "1", route.path)


@pytest.mark.parametrize("said", [{}, {"openapi_extra": {"x-permission": "everything"}}])
def test_a_route_that_does_not_say_what_it_asks_for_cannot_be_built(said):
    async def forgotten() -> None: ...

    with pytest.raises(InvariantBroken, match="does not say what it asks for"):
        router("/x", "x").get("", **said)(forgotten)


def test_a_route_of_another_class_is_not_taken_into_the_application(services: Services):
    other = APIRouter()

    @other.get("/open")
    async def unguarded() -> None: ...

    with pytest.raises(InvariantBroken, match="nobody guards it"):
        create_app(services, routers=[other])


def test_a_route_of_the_application_itself_has_to_say_it_too(app: FastAPI):
    async def forgotten() -> None: ...

    with pytest.raises(InvariantBroken):
        app.get("/x")(forgotten)


async def test_every_route_declares_a_permission_and_is_closed_without_a_key(app: FastAPI):
    async with calling(app) as nobody:
        for route in app.routes:
            if isinstance(route, WebSocketRoute):
                continue  # Whoever connects there shows a key of another kind.
            assert isinstance(route, Route), route
            for method in sorted(route.methods or ()):
                answer = await nobody.request(method, address(route))
                if route.permission is Permission.PUBLIC:
                    assert answer.status_code not in {401, 403}, route.path
                else:
                    told(answer, 401, "key-missing")


async def test_every_role_gets_where_its_permissions_reach_and_nowhere_else(
    services: Services, key_for: KeyFor
):
    doors = router("/doors", "doors")
    for permission in Permission:

        @doors.get(f"/{permission}", **needs(permission))
        async def door() -> str:
            return "in"

    everybody = {Permission.ANY, Permission.PUBLIC}
    asked = [permission for permission in Permission if permission not in everybody]
    app = create_app(services, routers=[doors])
    for role in Role:
        async with calling(app, await key_for(role)) as client:
            for permission in asked:
                answer = await client.get(f"/doors/{permission}")
                if permission in GRANTS[role]:
                    assert (answer.status_code, answer.json()) == (200, "in")
                else:
                    problem = told(answer, 403, "permission-missing")
                    assert problem["permission"] == permission
            assert (await client.get(f"/doors/{Permission.ANY}")).json() == "in"
    assert {
        Role.viewer: {Permission.READ},
        Role.operator: {Permission.READ, Permission.RUN, Permission.MANAGE, Permission.REPORT},
        Role.approver: {Permission.READ, Permission.APPROVE},
        Role.trader: {Permission.TRADE},
        Role.admin: set(asked),
    } == GRANTS


async def test_a_public_route_has_no_caller_to_ask_for(services: Services):
    open_door = router("/open", "open")

    @open_door.get("", **needs(Permission.PUBLIC))
    async def whoever(caller: Calling) -> str:
        return caller.person

    async with calling(create_app(services, routers=[open_door])) as nobody:
        told(await nobody.get("/open"), 500, "internal")


# What goes wrong


def test_every_error_is_told_in_its_own_way():
    for module in pkgutil.walk_packages(onward.__path__, "onward."):
        if not module.name.endswith((".__main__", ".env")) and ".versions." not in module.name:
            importlib.import_module(module.name)
    # Those of the command line leave with a code, and never come here.
    known = {
        error
        for error in everything_below(OnwardError)
        if error.__module__.startswith("onward.") and not error.__module__.startswith("onward.cli.")
    }
    assert known == set(PROBLEMS)
    for kind in PROBLEMS.values():
        assert 400 <= kind.status <= 599
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", kind.code)
    for error in known.intersection(everything_below(ServerProblem)):
        assert PROBLEMS[error].status == 503
    for error in known.intersection(everything_below(InvariantBroken)):
        assert (PROBLEMS[error].status, PROBLEMS[error].told) == (500, False)
    for error in known.intersection(everything_below(InvalidInput)):
        assert PROBLEMS[error].status == 422


def test_an_error_that_is_not_in_the_table_is_a_bug():
    class New(InvalidInput):
        pass

    assert of_error(New("a", "b")).status == 500


def test_only_what_may_do_better_in_a_moment_is_to_be_tried_again():
    assert "Retry-After" in of_error(HostBusy("x")).headers
    assert "Retry-After" not in of_error(InvalidInput("a", "b")).headers


async def test_a_problem_that_a_handler_raises_is_the_answer(sample: httpx2.AsyncClient):
    answer = await sample.get("/sample/fails/problem")
    problem = told(answer, 418, "teapot")
    assert (problem["title"], problem["detail"]) == ("Short and stout", "Tip me over.")
    assert (problem["n"], answer.headers["x-tea"]) == (1, "yes")


async def test_wrong_input_is_told_with_a_pointer_to_it(sample: httpx2.AsyncClient):
    problem = told(await sample.get("/sample/fails/input"), 422, "invalid")
    assert problem["errors"] == [{"pointer": "/params/a/0/b~1c", "detail": "is not good"}]


async def test_a_server_that_is_down_is_503_and_its_address_stays_with_us(
    sample: httpx2.AsyncClient,
):
    with structlog.testing.capture_logs() as logs:
        answer = await sample.get("/sample/fails/server")
    told(answer, 503, "unavailable")
    assert int(answer.headers["retry-after"]) > 0
    assert SECRET not in answer.text
    assert SECRET in str(logs)


@pytest.mark.parametrize("kind", ["bug", "drift"])
async def test_a_bug_is_written_down_and_not_told(sample: httpx2.AsyncClient, kind):
    with structlog.testing.capture_logs() as logs:
        answer = await sample.get(f"/sample/fails/{kind}")
    problem = told(answer, 500, "internal")
    assert SECRET not in answer.text
    assert answer.headers["x-content-type-options"] == "nosniff"
    (line,) = [line for line in logs if line["log_level"] == "error"]
    assert line["request_id"] == problem["request_id"]
    assert SECRET in line["traceback"]


async def test_no_key_is_ever_logged(sample: httpx2.AsyncClient):
    key = sample.headers["authorization"].removeprefix("Bearer ")
    with structlog.testing.capture_logs() as logs:
        await sample.get("/sample/fails/bug")
        await sample.get("/keys")
        await sample.get("/me", headers={"Authorization": f"Bearer {key}x"})
    assert len(logs) == 3
    assert key not in str(logs)


async def test_an_unknown_address_is_404_and_no_slash_is_guessed(sample: httpx2.AsyncClient):
    for path in ("/nothing", "/sample/", "/sample//", "/me/"):
        told(await sample.get(path), 404, "not-found")


async def test_an_unknown_method_is_405_with_all_methods_of_the_address(
    sample: httpx2.AsyncClient,
):
    answer = await sample.put("/keys")
    told(answer, 405, "method-not-allowed")
    assert answer.headers["allow"] == "GET, HEAD, OPTIONS, POST"
    told(await sample.request("BREW", "/keys"), 405, "method-not-allowed")


async def test_options_names_the_methods(sample: httpx2.AsyncClient):
    answer = await sample.options("/sample/1")
    assert (answer.status_code, answer.content) == (204, b"")
    assert answer.headers["allow"] == "GET, HEAD, OPTIONS, PUT"
    told(await sample.options("/nothing"), 404, "not-found")


async def test_head_is_get_without_its_body(sample: httpx2.AsyncClient):
    got, head = await sample.get("/sample/7"), await sample.head("/sample/7")
    assert (head.status_code, head.content) == (200, b"")
    for name in ("etag", "content-length", "content-type"):
        assert head.headers[name] == got.headers[name]
    missing = await sample.head("/nothing")
    assert (missing.status_code, missing.content) == (404, b"")


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/sample?name=a%00b", 400, "address-malformed"),
        ("/sample/fails/a%00b", 400, "address-malformed"),
        ("/sample?name=%ED%A0%80", 400, "address-malformed"),
        ("/sample?name=%FF", 400, "address-malformed"),
        ("/sample?limit=0", 422, "invalid"),
        ("/sample?limit=1001", 422, "invalid"),
        ("/sample?limit=9223372036854775808", 422, "invalid"),
        (f"/sample?limit={'9' * 5_000}", 422, "invalid"),
        ("/sample?limit=1.5", 422, "invalid"),
        ("/sample/9223372036854775808", 422, "invalid"),
        ("/sample/0", 422, "invalid"),
        ("/sample/-1", 422, "invalid"),
        ("/sample/+1", 422, "invalid"),
        ("/sample/1_0", 422, "invalid"),
        ("/sample/01", 422, "invalid"),
        ("/sample/%EF%BC%91", 422, "invalid"),
        ("/sample/one", 422, "invalid"),
        (f"/sample?name={'a' * 20_000}", 414, "address-too-long"),
    ],
)
async def test_an_address_that_means_nothing_is_refused(
    sample: httpx2.AsyncClient, path, status, code
):
    told(await sample.get(path), status, code)


async def test_an_address_in_any_script_is_understood(sample: httpx2.AsyncClient):
    answer = await sample.get("/sample?name=%E4%BD%A0%20%F0%9F%9A%80&limit=1000")
    assert answer.json() == {"limit": 1000, "name": "你 🚀"}


async def test_what_was_sent_is_not_sent_back(sample: httpx2.AsyncClient):
    for answer in (
        await sample.get(f"/sample/{SECRET}"),
        await sample.get(f"/sample?limit={SECRET}"),
        await sample.get(f"/{SECRET}"),
        await sample.post("/sample", json={"name": [SECRET], "count": SECRET}),
        await sample.post("/sample", content=SECRET, headers={"Content-Type": "application/json"}),
        await sample.get("/me", headers={"Authorization": f"Bearer {SECRET}"}),
        await sample.get("/me", headers={"X-Request-Id": f"{SECRET}!"}),
    ):
        assert SECRET not in answer.text
        assert SECRET not in str(answer.headers)


async def test_a_key_of_the_callers_making_is_shown_and_not_repeated(sample: httpx2.AsyncClient):
    answer = await sample.post(
        "/sample", json={"name": "a", "\x1b[31m/~": 1, "\u202e": 2, "x" * 5_000: 3}
    )
    pointers = [each["pointer"] for each in told(answer, 422, "invalid")["errors"]]  # type: ignore[attr-defined]
    assert pointers[:2] == [r"/'\x1b[31m~1~0'", r"/'\u202e'"]
    assert len(pointers[2]) < 100


async def test_of_a_thousand_errors_some_are_told(sample: httpx2.AsyncClient):
    answer = await sample.post("/sample", json={f"field{n}": n for n in range(1_000)})
    problem = told(answer, 422, "invalid")
    assert len(problem["errors"]) == 50  # type: ignore[arg-type]
    assert "of 1001 " in str(problem["detail"])


# What every answer carries


@pytest.mark.parametrize("given", ["a", "A-b_c.9", "x" * 128])
async def test_a_request_id_is_kept(sample: httpx2.AsyncClient, given):
    answer = await sample.get("/me", headers={"X-Request-Id": given})
    assert answer.headers.get_list("x-request-id") == [given]


@pytest.mark.parametrize("given", ["", "x" * 129, "a b", "a\tb", "ä", "a/b", '"', "a,b"])
async def test_a_request_id_that_is_none_is_replaced(sample: httpx2.AsyncClient, given):
    answer = await sample.get("/me", headers=[(b"X-Request-Id", given.encode())])
    (made,) = answer.headers.get_list("x-request-id")
    assert UUID7(made)


async def test_a_request_without_an_id_is_given_one_of_its_own(sample: httpx2.AsyncClient):
    ids = {(await sample.get("/me")).headers["x-request-id"] for _ in range(3)}
    assert len(ids) == 3
    assert all(map(UUID7, ids))


@pytest.mark.parametrize("path", ["/me", "/nothing", "/keys", "/sample/fails/bug", "/openapi.json"])
async def test_every_answer_says_what_browsers_should_not_do(sample: httpx2.AsyncClient, path):
    headers = (await sample.get(path)).headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["content-security-policy"] == "default-src 'none'; frame-ancestors 'none'"


async def test_what_a_handler_says_itself_is_left_alone(sample: httpx2.AsyncClient):
    headers = (await sample.get("/docs/static/swagger-ui.css")).headers
    assert headers.get_list("cache-control") == ["public, max-age=86400"]


@pytest.mark.parametrize(
    "headers",
    [
        [(f"x-{n}".encode(), b"1") for n in range(101)],
        [(b"x-long", b"a" * 33_000)],
        [(f"x-{n}".encode(), b"a" * 1_000) for n in range(40)],
    ],
    ids=["many", "one long", "long together"],
)
async def test_too_many_headers_or_too_long_ones_are_431(sample: httpx2.AsyncClient, headers):
    told(await sample.get("/me", headers=headers), 431, "headers-too-large")


# The description


async def test_the_description_is_open_to_all_and_names_what_each_operation_asks_for(app: FastAPI):
    async with calling(app) as nobody:
        described = (await nobody.get("/openapi.json")).json()
    assert described["openapi"].startswith("3.1.")
    assert described["info"]["title"] == "Onward"
    assert described["info"]["version"] == onward.__version__
    assert described["components"]["securitySchemes"]["key"]["scheme"] == "bearer"
    operations = [each for path in described["paths"].values() for each in path.values()]
    names = [each["operationId"] for each in operations]
    assert len(set(names)) == len(names)
    assert {"make_key", "list_keys", "revoke_key", "who_am_i"} <= set(names)
    for each in operations:
        public = Permission(each["x-permission"]) is Permission.PUBLIC
        assert ({"key": []} in each["security"]) is not public
        problem = each["responses"]["422"]["content"]["application/problem+json"]
        assert problem["schema"] == {"$ref": "#/components/schemas/Problem"}
    assert "HTTPValidationError" not in json.dumps(described)


def test_every_route_that_is_described_is_described_once(app: FastAPI):
    names = [route.unique_id for route in app.routes if isinstance(route, APIRoute)]
    assert len(set(names)) == len(names)


async def test_the_docs_page_loads_nothing_from_elsewhere(app: FastAPI):
    async with calling(app) as nobody:
        page = await nobody.get("/docs")
        assert page.status_code == 200
        assert "//" not in page.text.replace("<!DOCTYPE html>", "")
        policy = page.headers["content-security-policy"]
        assert "script-src 'self';" in policy
        assert "http" not in policy
        loaded = re.findall(r'(?:src|href)="([^"]+)"', page.text)
        assert len(loaded) == 4
        for path in loaded:
            answer = await nobody.get(f"/{path}")
            assert answer.status_code == 200
            assert answer.content
        told(await nobody.get("/docs/static/core.py"), 404, "not-found")
        told(await nobody.get("/docs/static/..%2Fcore.py"), 404, "not-found")


async def test_a_parameter_that_nobody_asked_for_is_refused(sample: httpx2.AsyncClient):
    """A filter with a typo in its name would filter nothing."""
    for address in ("/sample?nmae=x", "/sample?limit=1&x", "/sample/7?limit=1"):
        told(await sample.get(address), 422, "invalid")
    assert (await sample.get("/sample?name=x&limit=1")).status_code == 200
