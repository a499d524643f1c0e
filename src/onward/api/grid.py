"""Every execution of a job, as small as it gets: what a page draws before it asks for anything."""

from __future__ import annotations

import json
from typing import Final

from pydantic import BaseModel, Field
from starlette.responses import Response

from onward.api.jobs import UNKNOWN, unknown
from onward.api.paging import Id
from onward.api.permissions import Permission, needs
from onward.api.routing import router
from onward.api.services import Serving
from onward.api.telling import position_id
from onward.store import changes
from onward.store import grid as store

_RUNS: Final = "numbers that follow on each other, as the first of them and how many they are"

grid = router("/jobs", "jobs")


class Grid(BaseModel):
    """The executions of a job in the order of their hosts."""

    job_id: int = Field(examples=[17])
    position: str = Field(
        description="An id of `/events`: the stream from there tells every change that is not in "
        "here yet. One that is may be told again."
    )
    order: list[str] = Field(description="The statuses, each by its place.", examples=[store.ORDER])
    statuses: str = Field(
        description="A digit for each execution: the place of its status in `order`.",
        examples=["3324"],
    )
    hosts: list[tuple[int, int]] = Field(
        description=f"The ids of the hosts, in the same order: {_RUNS}.", examples=[[[1, 4]]]
    )
    executions: list[tuple[int, int]] = Field(
        description=f"The ids of the executions, in the same order: {_RUNS}.",
        examples=[[[812, 4]]],
    )
    late: list[int] = Field(
        description="The places of those whose host said something when it was too late."
    )


@grid.get("/{job_id}/grid", response_model=Grid, **needs(Permission.READ, responses=UNKNOWN))
async def get_job_grid(job_id: Id, services: Serving) -> Response:
    """Return every execution of a job as one digit, in the order of the hosts.

    It costs a byte an execution, so that a page can show all of them at once and follow `/events`
    from there.
    """
    # First the position: what changes while the rows are read is told by the stream.
    position = await changes.horizon(services.pool)
    found = await store.of_job(services.pool, job_id)
    if found is None:
        raise unknown()
    told = {
        "job_id": job_id,
        "position": position_id(position),
        "order": store.ORDER,
        **found._asdict(),
    }
    # Written as it is: to check ten thousand numbers of our own would take longer than all else.
    return Response(json.dumps(told, separators=(",", ":")), media_type="application/json")
