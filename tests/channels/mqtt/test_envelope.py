"""What is signed is believed by whom it is for, and nothing else is."""

from __future__ import annotations

import hashlib
import hmac
import json

import pytest

from onward.channels.mqtt import envelope
from onward.channels.mqtt.envelope import RESULTS, WORDS, Doubtful, Message
from onward.core.lifecycles import NODE

KEY = bytes(range(32))
COMMAND: Message = {
    "cmd_id": "018f6b0e-7c1a-7000-8000-000000000001",
    "cmd": "valve.open",
    "params": {"b": '指令 "\\\n', "a": [1, 2.5, None, True], "": {}},
    "ts": 1_700_000_000,
    "epoch": 7,
}
STATUS: Message = {
    "cmd_id": COMMAND["cmd_id"],
    "status": NODE.moves["done"].target,
    "epoch": 7,
    "ts": 1_700_000_001,
    "seq": 12,
    "result": {"output": "open"},
}
RECEIPT: Message = {"cmd_id": COMMAND["cmd_id"], "epoch": 7}
OPENERS = (envelope.open_command, envelope.open_status, envelope.open_receipt)


def test_the_signature_is_what_the_page_says():
    """Written out by hand, as firmware would."""
    text = (
        '{"cmd":"valve.open","cmd_id":"018f6b0e-7c1a-7000-8000-000000000001","epoch":7,'
        '"params":{"":{},"a":[1,2.5,null,true],"b":"指令 \\"\\\\\\n"},"ts":1700000000}'
    )
    sig = hmac.new(KEY, text.encode() + b"\npump-7", hashlib.sha256).hexdigest()
    sealed = envelope.seal(COMMAND, "pump-7", KEY)
    assert sealed.decode() == text.replace('"ts"', f'"sig":"{sig}","ts"')


def test_the_name_that_a_node_says_is_that_of_the_status_it_leads_to():
    assert WORDS.keys() > RESULTS
    for word, event in WORDS.items():
        assert NODE.event_called(word) == event
    assert {WORDS[word] for word in RESULTS} == NODE.results


def test_each_kind_is_opened_with_the_key_that_has_sealed_it():
    command = envelope.open_command(envelope.seal(COMMAND, "pump-7", KEY), "pump-7", KEY)
    assert command._asdict() == COMMAND
    status = envelope.open_status(envelope.seal(STATUS, "pump-7", KEY), "pump-7", KEY)
    assert (status.status, status.epoch, status.seq) == (STATUS["status"], 7, 12)
    receipt = envelope.open_receipt(envelope.seal(RECEIPT, "pump-7", KEY), "pump-7", KEY)
    assert receipt._asdict() == RECEIPT


def test_spaces_and_the_order_of_keys_do_not_matter():
    loose = json.dumps(json.loads(envelope.seal(STATUS, "pump-7", KEY)), indent=2).encode()
    assert envelope.open_status(loose, "pump-7", KEY).seq == 12


def test_what_was_signed_as_it_was_sent_is_believed_however_its_numbers_are_written():
    for text in (
        '{"cmd_id":"a","epoch":1,"result":1.50e1,"seq":3,%s"status":"DONE"}',
        '{"status":"DONE","cmd_id":"a","epoch":1,"result":0.000010,"seq":3%s}',
    ):
        signed = (text % "").encode() + b"\npump-7"
        sig = f'"sig":"{hmac.new(KEY, signed, hashlib.sha256).hexdigest()}"'
        sent = text % (f"{sig}," if text.endswith('"DONE"}') else f",{sig}")
        assert envelope.open_status(sent.encode(), "pump-7", KEY).seq == 3


def test_a_signature_in_any_other_place_makes_no_other_message():
    """Whoever sees a message may put its signature wherever they like: it says the same."""
    message: Message = {**STATUS, "error": 'a,"b\\', "result": {"output": "{,}", "n": [1, 2]}}
    sealed = envelope.seal(message, "pump-7", KEY).decode()
    sig = f'"sig":"{json.loads(sealed)["sig"]}"'
    rest = sealed.replace(f"{sig},", "")
    for place in range(len(rest) + 1):
        for piece in (f"{sig},", f",{sig}", f"{{{sig}", f" {sig}"):
            moved = rest[:place] + piece + rest[place:]
            try:
                opened = envelope.open_status(moved.encode(), "pump-7", KEY)
            except Doubtful:
                continue
            assert opened.said == message


def test_no_message_is_good_for_another_node_or_another_key():
    sealed = envelope.seal(COMMAND, "pump-7", KEY)
    for node, key in [("pump-8", KEY), ("pump-7", KEY[::-1]), ("", KEY)]:
        with pytest.raises(Doubtful, match="foreign signature"):
            envelope.open_command(sealed, node, key)


def test_no_bit_of_a_message_can_be_changed():
    sealed = envelope.seal(RECEIPT, "pump-7", KEY)
    for place in range(len(sealed)):
        for bit in range(8):
            changed = bytearray(sealed)
            changed[place] ^= 1 << bit
            with pytest.raises(Doubtful):
                envelope.open_receipt(bytes(changed), "pump-7", KEY)


def test_no_message_can_be_taken_for_one_of_another_kind():
    for kind, message in enumerate((COMMAND, STATUS, RECEIPT)):
        sealed = envelope.seal(message, "pump-7", KEY)
        for other, opener in enumerate(OPENERS):
            if other != kind:
                with pytest.raises(Doubtful):
                    opener(sealed, "pump-7", KEY)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xff\xfe",
        b"null",
        b"[]",
        b'"sig"',
        b"{}",
        b'{"sig": null}',
        b'{"sig": 7, "cmd_id": "x", "epoch": 1}',
        b'{"sig": "\xc3\xbc", "cmd_id": "x", "epoch": 1}',
        b'{"sig": "x", "epoch": NaN}',
        b'{"sig": "x", "epoch": 1e999}',
        b'{"sig": "x", "epoch": ' + b"9" * 10_000 + b"}",
        b'{"sig": "x", "cmd_id": "\\ud800"}',
        b'{"sig": ' + b"[" * 100_000,
    ],
)
def test_what_cannot_be_read_is_doubtful_and_no_crash(payload: bytes):
    for opener in OPENERS:
        with pytest.raises(Doubtful):
            opener(payload, "pump-7", KEY)


@pytest.mark.parametrize(
    "changes",
    [
        {"cmd_id": 7},
        {"status": "FINE"},
        {"status": []},
        {"epoch": "7"},
        {"epoch": -1},
        {"epoch": 2**63},
        {"epoch": True},
        {"seq": None},
        {"seq": 1.0},
    ],
)
def test_a_status_that_is_signed_and_makes_no_sense_is_doubtful(changes: Message):
    with pytest.raises(Doubtful):
        envelope.open_status(envelope.seal(STATUS | changes, "pump-7", KEY), "pump-7", KEY)
