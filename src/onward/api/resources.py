"""The routers that the application is made of, in the order of the docs page."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter

from onward.api.agents import agents
from onward.api.agents import of_host as agents_of_host
from onward.api.audit import audit
from onward.api.billing import billing, moving
from onward.api.blocks import blocks, of_host
from onward.api.callbacks import callbacks
from onward.api.command_types import command_types
from onward.api.commands import commands
from onward.api.deeds import deeds
from onward.api.events import events
from onward.api.executions import executions
from onward.api.grid import grid
from onward.api.hosts import hosts
from onward.api.intake import plan, webhook
from onward.api.inventories import inventories
from onward.api.jobs import jobs
from onward.api.keys import keys, me
from onward.api.lifecycles import lifecycles
from onward.api.market import issuing, market
from onward.api.operations import health, metrics, workers
from onward.api.outcomes import outcomes
from onward.api.overview import overview
from onward.api.pages import files, pages
from onward.api.sessions import session
from onward.api.trading import purchase_orders, sell_orders

RESOURCES: Final[tuple[APIRouter, ...]] = (
    webhook,
    plan,
    jobs,
    grid,
    outcomes,
    deeds,
    executions,
    hosts,
    inventories,
    of_host,
    blocks,
    agents_of_host,
    agents,
    command_types,
    commands,
    callbacks,
    events,
    billing,
    moving,
    purchase_orders,
    sell_orders,
    market,
    issuing,
    overview,
    lifecycles,
    workers,
    health,
    metrics,
    keys,
    me,
    session,
    audit,
    pages,
    files,
)
