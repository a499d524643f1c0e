"""How a job went, in groups: which hosts printed the same, and what went wrong for which cause."""

from __future__ import annotations

from pydantic import BaseModel, Field

from onward.api.jobs import UNKNOWN, row_of
from onward.api.paging import Id
from onward.api.permissions import Permission, needs
from onward.api.routing import router
from onward.api.services import Serving
from onward.core.lifecycles import EXECUTION
from onward.store import outcomes as store
from onward.store.outcomes import GROUPS_MAX, LINES_SHOWN

outcomes = router("/jobs", "jobs")

_DONE = str(EXECUTION.moves["succeed"].target)
_FAILED = str(EXECUTION.moves["fail"].target)


class PrintedLine(BaseModel):
    """A line of an example."""

    stream: str = Field(examples=["stdout"])
    text: str = Field(examples=["reloading nginx"])


class OutputGroup(BaseModel):
    """Executions that printed the same and ended in the same way."""

    output: str | None = Field(
        description="The digest of what they printed; `null`: nothing, or nobody knows.",
        examples=["5b2b1f6f1c8f4ab0a1a3c2de9f0c7d11"],
    )
    known: bool = Field(
        description="Whether it is known what they printed: a host that only repeats how an "
        "attempt ended does not say it again."
    )
    status: str = Field(examples=[_DONE])
    exit_code: int | None = Field(examples=[0])
    cause: str | None = Field(examples=[None])
    count: int = Field(examples=[983])
    hosts: list[str] = Field(description="The first of them.", examples=[["web-1", "web-2"]])
    execution_id: int = Field(description="The example: that of the first host.", examples=[812])
    lines: list[PrintedLine] = Field(
        description=f"What the example printed, up to {LINES_SHOWN} lines."
    )
    more: bool = Field(description="Whether the example printed more than is shown here.")


class OtherGroups(BaseModel):
    """Groups that are too many to be told."""

    groups: int = Field(examples=[0])
    count: int = Field(description="How many executions are in them.", examples=[0])


class Outputs(BaseModel):
    """What has ended of a job, by what it printed and how it ended."""

    total: int = Field(description="How many executions the job has.", examples=[1_000])
    ended: int = Field(examples=[1_000])
    silent: int = Field(description="Of those that ended, how many printed nothing.", examples=[3])
    unknown: int = Field(description="And of how many it is not known.", examples=[0])
    groups: list[OutputGroup] = Field(description=f"The {GROUPS_MAX} largest, the largest first.")
    others: OtherGroups


class CauseGroup(BaseModel):
    """Executions that went wrong for the same cause."""

    status: str = Field(examples=[_FAILED])
    cause: str | None = Field(examples=["UNREACHABLE"])
    count: int = Field(examples=[14])
    late: int = Field(
        description="Of how many the host has said since that it was done.", examples=[0]
    )
    execution_id: int = Field(description="The example: that of the first host.", examples=[812])
    host: str | None = Field(description="Of the example.", examples=["web-4"])
    error: str | None = Field(
        description="Of the example, in its words.", examples=["connection reset by peer"]
    )


class Causes(BaseModel):
    """What went wrong, the largest group first."""

    items: list[CauseGroup]


@outcomes.get("/{job_id}/outputs", **needs(Permission.READ, responses=UNKNOWN))
async def group_outputs(job_id: Id, services: Serving) -> Outputs:
    """Group what has ended of a job by what it printed and how it ended.

    What counts is the last attempt. Hosts printed the same if each of their streams is the same.
    """
    job = await row_of(services, job_id)
    found = await store.outputs(services.pool, job_id)
    groups = [OutputGroup.model_validate(row) for row in found.largest]
    others = OtherGroups(
        groups=found.groups - len(groups), count=found.ended - sum(each.count for each in groups)
    )
    return Outputs.model_validate(
        {
            "total": job["total"],
            "ended": found.ended,
            "silent": found.silent,
            "unknown": found.unknown,
            "groups": groups,
            "others": others,
        }
    )


@outcomes.get("/{job_id}/causes", **needs(Permission.READ, responses=UNKNOWN))
async def group_causes(job_id: Id, services: Serving) -> Causes:
    """Group what went wrong of a job by its cause, with an example each."""
    await row_of(services, job_id)
    found = await store.causes(services.pool, job_id)
    return Causes(items=[CauseGroup.model_validate(row) for row in found])
