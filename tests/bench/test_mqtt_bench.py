"""The measurement of MQTT: small, and only as to whether it measures what it says."""

from __future__ import annotations

import pytest

from onward.bench import mosquitto, mqtt
from onward.bench.mqtt import Sizes
from tests.bench.results import well_formed

SMALL = Sizes(nodes=20, round_trips=200, messages=200, rounds=1)


@pytest.mark.skipif(
    mosquitto.missing() is not None, reason="not run: needs mosquitto and mosquitto-clients"
)
def test_round_trips_are_measured_beside_what_mosquittos_clients_do():
    told: list[str] = []
    [result] = mqtt.mqtt(told.append, SMALL)
    assert well_formed(result)
    assert result.name == "MQTT round trips, 20 nodes"
    assert "mosquitto_pub" in str(result.against)
    assert sum("messages/s" in line for line in told) == 2
    assert "round trips/s" in told[-1]


def test_without_mosquitto_the_row_stays_open(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(mqtt, "missing", lambda: "mosquitto_sub")
    [result] = mqtt.mqtt(lambda _: None, SMALL)
    assert "not run: needs mosquitto_sub" in str(result.against)
    assert (result.ratio, result.holds) == (None, None)
