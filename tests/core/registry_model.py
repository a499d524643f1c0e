"""What the tests of the registry share: a clock that is told the time, and ways to a status."""

from onward.core import AGENT, Command, CommandRegistry, CommandStatus

ACCEPT_TIMEOUT_S, EXEC_TIMEOUT_S, TTL_S = 10.0, 30.0, 100.0

# The events of the lifecycle that callers send, and the method for each.
METHODS = {
    "accept": CommandRegistry.on_accepted,
    "execute": CommandRegistry.on_executed,
    "reject": CommandRegistry.on_rejected,
    "fail": CommandRegistry.on_failed,
}
WAYS = {
    CommandStatus.RECEIVED: (),
    CommandStatus.ACCEPTED: ("accept",),
    CommandStatus.EXECUTED: ("accept", "execute"),
    CommandStatus.REJECTED: ("reject",),
    CommandStatus.FAILED: ("accept", "fail"),
    CommandStatus.TIMEOUT: ("timeout",),
}
ENDED = sorted(AGENT.terminal)


class Clock:
    """Seconds, as the test says."""

    def __init__(self, now=1000.0):
        self.now = now

    def __call__(self):
        return self.now

    def advance(self, seconds):
        self.now += seconds


def new_registry(clock, **other):
    timeouts = {
        "accept_timeout_s": ACCEPT_TIMEOUT_S,
        "exec_timeout_s": EXEC_TIMEOUT_S,
        "ttl_s": TTL_S,
    }
    return CommandRegistry(clock=clock, **{**timeouts, **other})


def a_command(command_id="c-1", command_type="restart", **payload):
    return Command(command_id, command_type, payload)


def send(registry, event, command_id="c-1"):
    return METHODS[event](registry, command_id)


def bring(registry, clock, status, command_id="c-1"):
    """Take a new command to a status, and give its record."""
    registry.on_received(a_command(command_id))
    for event in WAYS[status]:
        if event == "timeout":
            clock.advance(ACCEPT_TIMEOUT_S)
            registry.expire_timeouts()
        else:
            send(registry, event, command_id)
    record = registry.get(command_id)
    assert record.status is status
    return record
