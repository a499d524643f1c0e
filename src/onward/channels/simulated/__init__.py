"""A fleet that exists only in memory, behind a network as bad as one asks for.

- `network`: what may go wrong on the way, drawn from a seed so that a run can be replayed.
- `hosts`: what a host does with what reaches it, and what it remembers.
- `behaviour`: what a command does on a host, read from its parameters.
- `journal`: what really happened, written down beside the system under test, and its checker.
- `channel`: the way to the hosts from within their process.
- `server` and `remote`: the same hosts in a process of their own, which outlives a killed worker.

`python -m onward.channels.simulated --help` starts such a process.
"""

from __future__ import annotations

from onward.channels.simulated.channel import SimulatedChannel
from onward.channels.simulated.hosts import COMMAND_TYPES, SimulatedFleet
from onward.channels.simulated.journal import Effect, Journal, What, check_journal
from onward.channels.simulated.network import NETWORKS, Network
from onward.channels.simulated.remote import RemoteSimulatedChannel
from onward.channels.simulated.server import serve

__all__ = [
    "COMMAND_TYPES",
    "NETWORKS",
    "Effect",
    "Journal",
    "Network",
    "RemoteSimulatedChannel",
    "SimulatedChannel",
    "SimulatedFleet",
    "What",
    "check_journal",
    "serve",
]
