"""Hosts that run sshd.

- `address`: where a host is to be found.
- `keys` and `known_hosts`: who we are, and who a host may be.
- `dial`: opens a connection; `pool`: keeps it.
- `script`: what is said to the shell of a host; `session`: what is heard from it.
- `channel`: one program for each attempt, and how it ended.
"""

from __future__ import annotations

from onward.channels.ssh.address import Address, Hop, parse
from onward.channels.ssh.channel import SshChannel
from onward.channels.ssh.dial import SshWay
from onward.channels.ssh.known_hosts import KnownHosts

__all__ = ["Address", "Hop", "KnownHosts", "SshChannel", "SshWay", "parse"]
