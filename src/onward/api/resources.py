"""The routers that the application is made of, in the order of the docs page."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter

from onward.api.command_types import command_types
from onward.api.commands import callbacks, commands
from onward.api.events import events
from onward.api.executions import executions
from onward.api.hosts import blocks, hosts
from onward.api.intake import plans, webhook
from onward.api.jobs import jobs
from onward.api.keys import keys, me
from onward.api.operations import health, metrics, workers

RESOURCES: Final[tuple[APIRouter, ...]] = (
    webhook,
    plans,
    jobs,
    executions,
    hosts,
    blocks,
    command_types,
    commands,
    callbacks,
    events,
    workers,
    health,
    metrics,
    keys,
    me,
)
