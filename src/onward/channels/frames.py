"""Deliveries and errors as parts of JSON frames, for hosts that another process reaches."""

from __future__ import annotations

from types import UnionType
from typing import Any, Final

from onward.channels.base import Delivery, Target
from onward.errors import (
    ChannelError,
    DeliveryUnknown,
    HostBusy,
    HostOffline,
    HostRefused,
    NotDelivered,
)

Frame = dict[str, Any]

_FIELDS: Final[dict[str, type | UnionType]] = {
    "command_id": str,
    "epoch": int,
    "command_type": str,
    "params": dict,
    "timeout_s": int | float,
    "exclusive": bool,
    "trace": dict,
    "argv": list | None,
    "masked": list,
}
# From the narrowest to the widest: the first that fits is the kind that is told.
_KINDS: Final[tuple[type[ChannelError], ...]] = (
    HostBusy,
    HostRefused,
    HostOffline,
    NotDelivered,
    DeliveryUnknown,
)


def delivery_out(delivery: Delivery) -> Frame:
    """A delivery as a part of a frame."""
    return {
        **delivery._asdict(),
        "target": delivery.target._asdict(),
        "params": dict(delivery.params),
        "trace": dict(delivery.trace),
        "argv": None if delivery.argv is None else list(delivery.argv),
        "masked": list(delivery.masked),
    }


def delivery_in(frame: Frame) -> Delivery:
    """The delivery in a part of a frame; ValueError if there is none."""
    try:
        delivery = Delivery(**frame | {"target": Target(**frame["target"])})
    except (KeyError, TypeError) as error:
        raise ValueError(str(error)) from None
    if not all(isinstance(frame.get(name), kind) for name, kind in _FIELDS.items()):
        raise ValueError("a field of the delivery has the wrong type")
    if not isinstance(delivery.target.host_id, int):
        raise ValueError("host_id must be a whole number")  # noqa: TRY004 - one error for the caller
    return delivery


def error_out(error: ChannelError) -> list[str]:
    """An error as a part of a frame: the nearest kind that the other side knows, and its text."""
    kind = next((kind for kind in _KINDS if isinstance(error, kind)), DeliveryUnknown)
    return [kind.__name__, str(error)]


def error_in(parts: list[str]) -> ChannelError:
    """The error in a part of a frame."""
    name, text = parts
    return next((kind for kind in _KINDS if kind.__name__ == name), DeliveryUnknown)(text)
