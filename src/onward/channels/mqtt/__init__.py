"""Nodes behind an MQTT broker: commands go out signed, and what the nodes say comes back later.

- `envelope`: what is said on the topics, and the signature under it.
- `wire`: the server's side; `fleet.carry` makes a channel of it.
- `packets` and `connection`: MQTT 5 itself, as much of it as the wire needs.
- `replays`: which messages of a node have been taken before.
- `keys` and `said`: the keys of nodes by name; the details of what a node says.
- `node`, `conduct` and `memory`: a node in Python, to test against and as an example for firmware.

The wire speaks MQTT with a client of its own. A library would acknowledge a message before it is on
disk, does not say whether anybody has subscribed to what was published, and takes longer.
The node speaks it with aiomqtt, so that the two sides are not wrong in the same way.

`python -m onward.channels.mqtt.node --help` starts such a node.
"""

from __future__ import annotations

from onward.channels.mqtt.wire import MqttWire

__all__ = ["MqttWire"]
