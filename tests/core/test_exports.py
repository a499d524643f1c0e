"""What the core gives to the rest, by name."""

from onward import core


def test_the_public_names_are_these():
    assert set(core.__all__) == {
        *("AGENT", "EXECUTION", "LIFECYCLES", "NODE", "ORDER", "PLATFORM", "PLATFORM_LENIENT"),
        *("Command", "CommandRecord", "CommandRegistry", "CommandStatus"),
        *("Decision", "Lifecycle", "Move", "Timer", "Transition", "TransitionResult"),
        *("lifecycle_named", "move", "ranked"),
    }


def test_the_public_names_are_sorted_and_said_once():
    # Constants, then classes, then functions, each by the alphabet, as ruff sorts them.
    def place(name):
        return (not name.isupper(), not name[0].isupper(), name)

    assert core.__all__ == sorted(set(core.__all__), key=place)


def test_every_public_name_is_there():
    assert all(hasattr(core, name) for name in core.__all__)
