"""What goes to another process comes out of its frame as it went in."""

from __future__ import annotations

import json

import pytest

from onward.channels.base import Delivery, Target
from onward.channels.frames import delivery_in, delivery_out, error_in, error_out
from onward.errors import DeliveryUnknown, HostBusy, HostOffline, HostRefused, NotDelivered

DELIVERY = Delivery(
    "7",
    9,
    Target(3, "web-1", "ann@web-1:22", 4),
    "restart",
    {"service": "caddy", "password": "hunter2"},
    12.5,
    exclusive=False,
    trace={"request_id": "r"},
    argv=["systemctl", "restart", "{service}"],
    masked=["password"],
)


@pytest.mark.parametrize("delivery", [DELIVERY, DELIVERY._replace(argv=None, masked=[])])
def test_a_delivery_arrives_whole(delivery: Delivery):
    assert delivery_in(json.loads(json.dumps(delivery_out(delivery)))) == delivery


@pytest.mark.parametrize("field", DELIVERY._fields)
def test_a_delivery_with_a_field_of_another_kind_is_none(field: str):
    with pytest.raises(ValueError, match=r".+"):
        delivery_in({**delivery_out(DELIVERY), field: 1.5j})


@pytest.mark.parametrize(
    "kind", [HostBusy, HostRefused, HostOffline, NotDelivered, DeliveryUnknown]
)
def test_an_error_arrives_as_the_kind_that_it_was(kind: type[Exception]):
    arrived = error_in(error_out(kind("why")))  # type: ignore[arg-type]
    assert (type(arrived), str(arrived)) == (kind, "why")


def test_a_kind_that_is_not_known_here_leaves_it_unknown():
    assert type(error_in(["Novel", "why"])) is DeliveryUnknown
