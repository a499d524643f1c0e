"""The catalogue of what goes wrong: what may stand in a field, an address, a header or a body."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from typing import Final, NamedTuple

# Sent in places where it is nobody's business, and looked for in answers and logs.
CANARY: Final = "canary-of-the-whole-api-4711"
_SECRET: Final = CANARY.encode()


class Value(NamedTuple):
    """A JSON text for one field, and what JSON type it has."""

    text: bytes
    kind: str


class Whole(NamedTuple):
    """A body, and the statuses that may answer it on a route that takes JSON."""

    body: bytes
    statuses: frozenset[int]


def _text(value: bytes) -> Value:
    return Value(b'"' + value + b'"', "string")


def _nested(levels: int) -> bytes:
    return b"[" * levels + b"]" * levels


# No field takes these, whatever it is for: they are not JSON as everybody reads it.
NO_JSON: Final[Mapping[str, bytes]] = {
    "NaN": b"NaN",
    "Infinity": b"Infinity",
    "-Infinity": b"-Infinity",
    "1e400": b"1e400",
    "-1e400": b"-1e400",
    "4,301 digits": b"9" * 4_301,
    "a sign in front": b"+1",
    "a zero in front": b"01",
    "hexadecimal": b"0x10",
    "a comma": b",",
    "single quotes": b"'a'",
    "undefined": b"undefined",
    "a key twice": b'{"a": 1, "a": 1}',
    "a key twice, once escaped": rb'{"a": 1, "\u0061": 1}',
    "nested too deep": _nested(100_000),
    "nested too deep, in objects": b'{"a":' * 1_000 + b"1" + b"}" * 1_000,
    "a raw newline": b'"a\nb"',
    "a raw NUL": b'"a\x00b"',
    "no UTF-8": b'"\xff"',
    "a surrogate in UTF-8": b'"\xed\xa0\x80"',
    "an overlong slash": b'"\xc0\xaf"',
    "a secret, cut off": b'"' + _SECRET,
}

# JSON, but no text that could be stored.
HALVES: Final[Mapping[str, bytes]] = {
    "half a surrogate pair": rb'"\ud800"',
    "the other half": rb'"a\udfffb"',
    "both halves, the wrong way round": rb'"\udc00\ud800"',
    "half a pair in a key": rb'{"\ud800": 1}',
    "half a pair, deep": rb'[{"a": ["\udbff"]}]',
}

VALUES: Final[Mapping[str, Value]] = {
    "null": Value(b"null", "null"),
    "true": Value(b"true", "boolean"),
    "false": Value(b"false", "boolean"),
    "0": Value(b"0", "integer"),
    "-1": Value(b"-1", "integer"),
    "2^31": Value(b"2147483648", "integer"),
    "2^63 - 1": Value(b"9223372036854775807", "integer"),
    "2^63": Value(b"9223372036854775808", "integer"),
    "2^64": Value(b"18446744073709551616", "integer"),
    "-2^63 - 1": Value(b"-9223372036854775809", "integer"),
    "400 digits": Value(b"9" * 400, "integer"),
    "1.0": Value(b"1.0", "number"),
    "1e3": Value(b"1e3", "number"),
    "-0.0": Value(b"-0.0", "number"),
    "1e-400": Value(b"1e-400", "number"),
    "1e308": Value(b"1e308", "number"),
    "empty": _text(b""),
    "a space": _text(b" "),
    "spaces": _text(b"   "),
    "a space at the end": _text(b"a "),
    "digits": _text(b"10"),
    "a word": _text(b"true"),
    "NUL": _text(rb"a\u0000b"),
    "a newline": _text(rb"a\nb"),
    "CRLF": _text(rb"a\r\nSet-Cookie: b=c"),
    "ANSI": _text(rb"\u001b[31mred"),
    "C1 control": _text(rb"\u009b31m"),
    "bidi override": _text(rb"a\u202eb"),
    "zero width": _text(rb"a\u200bb"),
    "a byte order mark": _text(rb"\ufeffa"),
    "no character": _text(rb"\uffff"),
    "a rocket": _text(rb"\ud83d\ude80"),
    "decomposed": _text(rb"e\u0301"),
    "full-width digits": _text(rb"\uff11\uff12"),
    "up the tree": _text(b"../../etc/passwd"),
    "SQL": _text(b"'; DROP TABLE onward.jobs; --"),
    "shell": _text(b"$(reboot) `reboot` ; reboot"),
    "template": _text(b"{{7*7}} ${7*7} %s %n"),
    "HTML": _text(b"<script>alert(1)</script>"),
    "percent": _text(b"%00%FF"),
    "256 characters": _text(b"a" * 256),
    "2,000 characters": _text(b"a" * 2_000),
    "a megabyte": _text(b"a" * 1_000_000 + _SECRET),
    "a megabyte of stars": _text(b"*" * 1_000_000),
    "a naive time": _text(b"2031-05-01T18:00:00"),
    "a date": _text(b"2031-05-01"),
    "the year 9999": _text(b"9999-12-31T23:59:59Z"),
    "the year 0": _text(b"0000-01-01T00:00:00Z"),
    "a leap second": _text(b"2016-12-31T23:59:60Z"),
    "no such day": _text(b"2031-02-30T00:00:00Z"),
    "for ever": _text(b"infinity"),
    "an offset of days": _text(b"2031-05-01T18:00:00+99:99"),
    "a time as a number": Value(b"1800000000", "integer"),
    "a time in milliseconds": Value(b"1800000000000", "integer"),
    "a list": Value(b"[]", "array"),
    "a list of null": Value(b"[null]", "array"),
    "a list of lists": Value(_nested(70), "array"),
    "a list of everything": Value(b'[1, 1.5, true, null, "a", {}, []]', "array"),
    "a long list": Value(b"[" + b"1," * 20_000 + b"1]", "array"),
    "a list of NUL": Value(rb'["a\u0000b"]', "array"),
    "an object": Value(b"{}", "object"),
    "a secret in an object": Value(b'{"password": "' + _SECRET + b'"}', "object"),
    "a secret in a number's place": Value(b'{"a": [{"token": "' + _SECRET + b'"}]}', "object"),
    "an object with strange keys": Value(
        rb'{"": 1, " ": 2, "\u0000": 3, "a/b~c": 4, "\u202e": 5, "__proto__": {}}', "object"
    ),
    "labels of other types": Value(b'{"labels": {"role": 1, "zone": null}}', "object"),
    "names of other types": Value(rb'{"hostnames": [1, null, "", "a\u0000b"]}', "object"),
    "brackets in an expression": Value(
        b'{"expression": "' + b"(" * 2_000 + b"a=b" + b")" * 2_000 + b'"}', "object"
    ),
    "stars in an expression": Value(b'{"expression": "a=' + b"*a" * 1_000 + b'"}', "object"),
    "an object of NUL": Value(rb'{"a": "a\u0000b"}', "object"),
    "an object with many keys": Value(
        b"{" + b",".join(b'"k%d": "v"' % n for n in range(2_000)) + b"}", "object"
    ),
}

# What may stand in one place of an address, as it is sent.
ADDRESSES: Final[Mapping[str, bytes]] = {
    "0": b"0",
    "-1": b"-1",
    "+1": b"+1",
    "%2B1": b"%2B1",
    "1_000": b"1_000",
    "01": b"01",
    "1.0": b"1.0",
    "1e3": b"1e3",
    "hexadecimal": b"0x1",
    "true": b"true",
    "null": b"null",
    "NaN": b"NaN",
    "2^31": b"2147483648",
    "2^63 - 1": b"9223372036854775807",
    "2^63": b"9223372036854775808",
    "2^64": b"18446744073709551616",
    "5,000 digits": b"9" * 5_000,
    "20,000 characters": b"a" * 20_000,
    "2,000 characters and a secret": b"a" * 2_000 + _SECRET,
    "full-width digits": b"%EF%BC%91",
    "Arabic digits": b"%D9%A1",
    "a superscript": b"%C2%B2",
    "NUL": b"%00",
    "NUL inside": b"a%00b",
    "NUL, encoded twice": b"%2500",
    "no UTF-8": b"%FF",
    "half a surrogate pair": b"%ED%A0%80",
    "half a pair inside": b"a%ED%BF%BFb",
    "overlong": b"%C0%80",
    "a rocket": b"%F0%9F%9A%80",
    "a space": b"%20",
    "spaces": b"%20%20%20",
    "a number and a space": b"1%20",
    "a newline": b"a%0Ab",
    "CRLF": b"a%0D%0ASet-Cookie:b=c",
    "ANSI": b"%1B%5B31m",
    "bidi override": b"%E2%80%AE",
    "zero width": b"%E2%80%8B",
    "up": b"..",
    "up, encoded": b"%2E%2E",
    "up and further": b"..%2F..%2Fetc%2Fpasswd",
    "a slash": b"%2F",
    "a slash inside": b"a%2Fb",
    "a backslash": b"..%5C..",
    "a dot": b".",
    "SQL": b"'%20OR%201=1--",
    "a semicolon": b"1;drop",
    "a list": b"1,2",
    "brackets": b"%5B%5D",
    "braces": b"%7B%7D",
    "a star": b"*",
    "a percent sign": b"%",
    "no hexadecimal": b"%zz",
    "half of it": b"%f",
}

# Numbers and words for yes that are written in other ways than ours, and clear all the same.
CLEAR: Final = frozenset({"0", "+1", "%2B1", "1_000", "01", "1.0", "true", "a number and a space"})
LARGE: Final = frozenset({"2^31", "2^63 - 1"})

# What is refused wherever it stands in an address.
NO_ADDRESS: Final = frozenset(
    {
        *("NUL", "NUL inside", "no UTF-8", "half a surrogate pair", "half a pair inside"),
        *("overlong", "20,000 characters"),
    }
)

_UNREADABLE: Final = frozenset({400})
_UNFIT: Final = frozenset({422})

BODIES: Final[Mapping[str, Whole]] = {
    "empty": Whole(b"", _UNREADABLE),
    "spaces": Whole(b" \r\n\t ", _UNREADABLE),
    "null": Whole(b"null", _UNFIT),
    "an array": Whole(b"[]", _UNFIT),
    "an array of objects": Whole(b"[{}]", _UNFIT),
    "a text": Whole(b'"a"', _UNFIT),
    "a number": Whole(b"1", _UNFIT),
    "true": Whole(b"true", _UNFIT),
    "NaN": Whole(b"NaN", _UNREADABLE),
    "an unknown field": Whole(b'{"is_admin": true}', _UNFIT),
    "a field without a name": Whole(b'{"": 1}', _UNFIT),
    "fields of ours": Whole(
        b'{"status": "DONE", "approved_by": "me", "approval_state": "APPROVED", "id": 1}', _UNFIT
    ),
    "a secret in an unknown field": Whole(b'{"x": "' + _SECRET + b'"}', _UNFIT),
    "a thousand unknown fields": Whole(
        b"{" + b",".join(b'"x%d": 1' % n for n in range(1_000)) + b"}", _UNFIT
    ),
    "a key twice": Whole(b'{"x": 1, "x": 2}', _UNREADABLE),
    "half a surrogate pair": Whole(rb'{"x": "\ud800"}', _UNFIT),
    "half a pair in a key": Whole(rb'{"\udfff": 1}', _UNFIT),
    "half of it": Whole(b'{"x": "' + _SECRET, _UNREADABLE),
    "two of them": Whole(b"{}{}", _UNREADABLE),
    "a comma too many": Whole(b'{"x": 1,}', _UNREADABLE),
    "a comment": Whole(b"{} // " + _SECRET, _UNREADABLE),
    "UTF-16": Whole('{"x": 1}'.encode("utf-16"), _UNREADABLE),
    "UTF-16 without a mark": Whole('{"x": 1}'.encode("utf-16-be"), _UNREADABLE),
    "UTF-32": Whole('{"x": 1}'.encode("utf-32"), _UNREADABLE),
    "a byte order mark": Whole(b'\xef\xbb\xbf{"x": 1}', _UNREADABLE),
    "no UTF-8": Whole(b'{"x": "\xff"}', _UNREADABLE),
    "nothing but NUL": Whole(b"\x00" * 1_000, _UNREADABLE),
    "deep": Whole(b"[" * 100_000, _UNREADABLE),
    "deep, closed": Whole(_nested(100_000), _UNREADABLE),
    "deep objects": Whole(b'{"a":' * 100_000, _UNREADABLE),
    "quotes without end": Whole(b'{"a": "' + rb"\"" * 100_000, _UNREADABLE),
    "4,301 digits": Whole(b'{"x": ' + b"9" * 4_301 + b"}", _UNREADABLE),
    "compressed": Whole(gzip.compress(b'{"x": 1}'), _UNREADABLE),
    "XML": Whole(b'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY y "z">]><x>&y;</x>', _UNREADABLE),
    "a form": Whole(b"x=1&y=2", _UNREADABLE),
    "YAML that makes objects": Whole(
        b"!!python/object/apply:os.system ['" + _SECRET + b"']", _UNREADABLE
    ),
    "YAML that grows": Whole(
        b"a: &a [x, x]\n"
        + b"\n".join(b"%c: &%c [*%c, *%c]" % (n, n, n - 1, n - 1) for n in range(98, 122)),
        _UNREADABLE,
    ),
}

# No route takes a body that is called so, or cannot be told apart from another.
CONTENT_TYPES: Final[Mapping[str, tuple[bytes, ...]]] = {
    "none": (),
    "empty": (b"",),
    "form": (b"application/x-www-form-urlencoded",),
    "multipart": (b"multipart/form-data; boundary=x",),
    "bytes": (b"application/octet-stream",),
    "another charset": (b"application/json; charset=utf-16",),
    "a made-up one": (b"application/" + _SECRET,),
    "garbage": (b"\xff\x01;;;",),
    "several in one": (b"application/json, application/json",),
    "two headers": (b"application/json", b"application/json"),
    "two that differ": (b"application/json", b"text/csv"),
    "long": (b"application/json;" + b"x" * 8_000,),
}

ENCODINGS: Final = (b"gzip", b"br", b"deflate", b"gzip, identity", b"x-" + _SECRET, b"")

# What a body may claim of its length where nobody before us has looked.
LENGTHS: Final = (b"-1", b"+1", b"abc", b"1, 1", b"\xff", b"", b"0", b"1", b"9" * 30)

# What If-Match says, and what no change is made on.
IF_MATCH: Final[Mapping[str, tuple[bytes, ...]]] = {
    "any": (b"*",),
    "empty": (b"",),
    "unquoted": (b"1",),
    "unbalanced": (b'"1',),
    "an empty tag": (b'""',),
    "weak": (b'W/"1"',),
    "a list": (b'"1", "2"',),
    "two headers": (b'"1"', b'"1"'),
    "zero": (b'"0"',),
    "negative": (b'"-1"',),
    "2^63": (b'"9223372036854775808"',),
    "the last there can be": (b'"9223372036854775807"',),
    "text": (b'"' + _SECRET + b'"',),
    "a control byte": (b'"1\x01"',),
    "other bytes": (b'"\xe4\xff"',),
    "10 KB": (b'"' + b"1" * 10_000 + b'"',),
    "of another plan": (b'"plan-00000000000000000000000000000000"',),
}

# What does not say who calls.
AUTHORIZATIONS: Final[Mapping[str, tuple[bytes, ...]]] = {
    "none": (),
    "empty": (b"",),
    "a scheme alone": (b"Bearer",),
    "a scheme and a space": (b"Bearer ",),
    "an unknown key": (b"Bearer onw_" + b"a" * 43,),
    "a secret": (b"Bearer " + _SECRET + b"0" * 32,),
    "a short one": (b"Bearer " + _SECRET,),
    "a long one": (b"Bearer " + b"a" * 10_000,),
    "two words": (b"Bearer " + b"a" * 40 + b" " + b"b" * 40,),
    "another scheme": (b"Basic " + b"YTpi" * 12,),
    "no scheme": (b"a" * 47,),
    "a tab": (b"Bearer\t" + b"a" * 47,),
    "NUL": (b"Bearer " + b"a" * 40 + b"\x00",),
    "other bytes": (b"Bearer " + b"\xff" * 47,),
    "SQL": (b"Bearer '" + b"%20" * 16 + b"--",),
}

REQUEST_IDS: Final = (b"", b"a b", b"\xff", b"x" * 5_000, _SECRET + b"!", b"a\r\nb")

# What signed messages carry, when it is not right.
SIGNATURES: Final[Mapping[str, tuple[tuple[bytes, bytes], ...]]] = {
    "an id alone": ((b"webhook-id", b"a"),),
    "all wrong": (
        (b"webhook-id", b"\xff"),
        (b"webhook-timestamp", b"9" * 400),
        (b"webhook-signature", b"v1," + _SECRET),
    ),
    "twice": ((b"webhook-id", b"a"), (b"webhook-id", b"a")),
    "a time before time": (
        (b"webhook-id", b"a"),
        (b"webhook-timestamp", b"-1"),
        (b"webhook-signature", b"v1,YQ=="),
    ),
    "at the end of time": (
        (b"webhook-id", b"a"),
        (b"webhook-timestamp", b"99999999999"),
        (b"webhook-signature", b"v1,YQ== " * 500),
    ),
}

# What a cursor may hold that no list has given, under a checksum that is right.
POSITIONS: Final[Mapping[str, bytes]] = {
    "nothing": b"",
    "no JSON": b"x",
    "no UTF-8": b'["\xff"]',
    "null": b"null",
    "an object": b'{"a": 1}',
    "a number": b"1",
    "an empty list": b"[]",
    "0": b"[0]",
    "-1": b"[-1]",
    "2^63 - 1": b"[9223372036854775807]",
    "2^63": b"[9223372036854775808]",
    "-2^63": b"[-9223372036854775808]",
    "600 digits": b"[" + b"9" * 600 + b"]",
    "1.5": b"[1.5]",
    "NaN": b"[NaN]",
    "true": b"[true]",
    "a list of null": b"[null]",
    "a list of lists": b"[[1]]",
    "deep": b"[" * 350 + b"]" * 350,
    "text": b'["a"]',
    "NUL": rb'["a\u0000b"]',
    "half a surrogate pair": rb'["\ud800"]',
    "a long text": b'["' + b"a" * 300 + b'"]',
    "a UUID": b'["019a9433-7c3e-7d61-8b5e-3f1f3f0c2a77"]',
    "a number and a text": b'[1, "a"]',
    "a number and NUL": rb'[1, "\u0000"]',
    "a text and a number": b'["a", 1]',
    "two numbers": b"[9223372036854775807, 9223372036854775807]",
    "four zeros": b"[0, 0, 0, 0]",
    "four numbers": b"[9223372036854775807, 9223372036854775807, 9223372036854775807, 1]",
    "a past without end": b"[1, 9223372036854775807, 9223372036854775807, 1]",
    "a time without end": b"[1, 0, 0, 9223372036854775807]",
    "a time before time": b"[1, 0, 0, -9223372036854775807]",
}


def tampered(cursor: bytes) -> Mapping[str, bytes]:
    """Spoil a cursor in every way."""
    flipped = bytes([cursor[0] ^ 1])
    return {
        "empty": b"",
        "cut": cursor[:-2],
        "short": cursor[:4],
        "longer": cursor + b"AAAA",
        "twice": cursor + cursor,
        "changed": flipped + cursor[1:],
        "in other letters": cursor.swapcase(),
        "of other letters": b"+/" + cursor[2:],
        "huge": b"A" * 10_000,
        "no base64": b"%21" * 20,
        "no ASCII": b"%E4%BD%A0",
    }
