"""Inventories of our own forms, CSV and JSON: hosts as they are written, or every mistake."""

from __future__ import annotations

from typing import get_args

import pytest

from onward.fleet import inventory
from onward.fleet.hosts import CHANNELS
from onward.fleet.inventory import Form, Mistake
from onward.store.hosts import NewHost
from tests.fleet.inventories import hosts, mistakes, the_mistake

FORMS: tuple[Form, ...] = get_args(Form)

# The same two hosts in every form.
TWO: dict[Form, str] = {
    "csv": "name,address,zone\na,10.0.0.1,eu\nb,,us\n",
    "json": '[{"name": "a", "address": "10.0.0.1", "labels": {"zone": "eu"}},\n'
    ' {"name": "b", "labels": {"zone": "us"}}]\n',
    "ini": "a ansible_host=10.0.0.1 zone=eu\nb zone=us\n",
    "yaml": "all:\n  hosts:\n    a: {ansible_host: 10.0.0.1, zone: eu}\n    b: {zone: us}\n",
    "ssh_config": "# us\nHost a\n  HostName 10.0.0.1\nHost b\n",
}
WANTED = [
    NewHost("a", {"zone": "eu"}, "simulated", "10.0.0.1"),
    NewHost("b", {"zone": "us"}, "simulated", ""),
]
# OpenSSH knows no labels, and its hosts are reached in one way.
OVER_SSH = [NewHost("a", {}, "ssh", "10.0.0.1"), NewHost("b", {}, "ssh", "b")]
LABELLED = [form for form in FORMS if form != "ssh_config"]


# Every form.


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("mark", ["", "\ufeff"], ids=["plain", "byte order mark"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"], ids=["LF", "CRLF", "CR"])
def test_the_same_hosts_are_read_from_every_form(form: Form, mark: str, end: str):
    found = inventory.read((mark + TWO[form].replace("\n", end)).encode(), form)
    assert found == (OVER_SSH if form == "ssh_config" else WANTED, [], 0)


@pytest.mark.parametrize("form", LABELLED)
def test_a_host_that_names_no_channel_gets_the_callers(form: Form):
    for channel in CHANNELS:
        found = hosts(TWO[form], form, channel=channel)
        assert {host.channel for host in found.values()} == {channel}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "content", [b"", b" ", b"\xef\xbb\xbf", b"# nothing\n", b"[]", b'{"hosts": []}', b"all:\n"]
)
def test_an_inventory_without_a_host_is_a_mistake(form: Form, content: bytes):
    assert the_mistake(content, form).line == 1


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("sign", ["\0", "\x07", "\x1b[31m", "\x0b", "\x7f"])
def test_a_control_character_is_refused_with_its_line(form: Form, sign: str):
    content = TWO[form].replace("us", f"u{sign}s")
    line, text = the_mistake(content, form)
    assert line == content.count("\n", 0, content.index(sign)) + 1
    assert "control character" in text
    assert text.isascii()
    assert text.isprintable()


@pytest.mark.parametrize("form", FORMS)
def test_what_is_not_utf8_is_refused_with_its_line(form: Form):
    content = TWO[form].encode().replace(b"us", b"\xff")
    line, text = the_mistake(content, form)
    assert (line, text) == (
        content.count(b"\n", 0, content.index(b"\xff")) + 1,
        "it is not UTF-8; save the file as UTF-8",
    )
    assert the_mistake(TWO[form].encode("utf-16"), form).text == text


@pytest.mark.parametrize("form", FORMS)
def test_an_encrypted_file_says_how_to_decrypt_it(form: Form):
    content = "$ANSIBLE_VAULT;1.1;AES256\n6133623\n"
    assert "ansible-vault decrypt" in the_mistake(content, form).text


@pytest.mark.parametrize("form", LABELLED)
def test_a_value_is_kept_as_it_is_written(form: Form):
    written = {
        "csv": "name,v,y,n\na,1.10,yes,007\n",
        "json": '[{"name": "a", "labels": {"v": 1.10, "y": "yes", "n": "007"}}]',
        "ini": "a v=1.10 y=yes n=007\n",
        "yaml": "all: {hosts: {a: {v: 1.10, y: yes, n: 007}}}\n",
    }
    assert hosts(written[form], form)["a"].labels == {"v": "1.10", "y": "yes", "n": "007"}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "name", ["-rf", ".hidden", "a/b", "a b", "ä", "a\u202eb", "a;b", "$(id)", "a%", "x" * 256]
)
def test_a_name_that_is_not_safe_everywhere_is_refused_with_its_line(form: Form, name: str):
    content = TWO[form].replace('"b"', f'"{name}"')
    if form == "csv":
        content = content.replace("\nb,", f'\n"{name}",')
    elif form == "ini":
        content = content.replace("\nb ", f'\n"{name}" ')
    elif form == "yaml":
        content = content.replace(" b:", f' "{name}":')
    elif form == "ssh_config":
        content = content.replace("Host b", f'Host "{name}"')
    found = the_mistake(content, form)
    assert found.line == TWO[form].count("\n")
    assert found.text.isascii()
    assert len(found.text) < 300


@pytest.mark.parametrize("form", FORMS)
def test_a_form_that_was_mistaken_for_another_is_refused(form: Form):
    for other in FORMS:
        # JSON is YAML, but a list of hosts is no inventory of Ansible's.
        if other != form:
            assert mistakes(TWO[other], form)


@pytest.mark.parametrize("form", ["csv", "json"])
def test_a_host_that_is_there_twice_and_says_the_same_is_one(form: Form):
    twice = {"csv": "name,zone\na,eu\na,eu\n", "json": '[{"name": "a"},\n{"name": "a"}]'}
    assert list(hosts(twice[form], form)) == ["a"]


@pytest.mark.parametrize("form", ["csv", "json"])
def test_a_host_that_contradicts_itself_names_both_lines(form: Form):
    twice = {
        "csv": "name,zone,ip\na,eu,x\nb,,\na,us,y\n",
        "json": '[{"name": "a"},\n{"name": "b"},\n{"name": "a", "address": "y", '
        '"labels": {"zone": "us"}}]',
    }
    line, text = the_mistake(twice[form], form)
    assert line == (4 if form == "csv" else 3)
    assert f"in line {line - 2}, with another labels and address; keep one" in text


def test_mistakes_are_in_the_order_of_their_lines_and_the_rest_is_counted():
    rows = "".join(f"-{n}\n" for n in range(1_000))
    found = inventory.read(f"name\n{rows}".encode(), "csv")
    assert [mistake.line for mistake in found.mistakes] == list(range(2, 102))
    assert (found.hosts, found.more) == ([], 900)


# CSV.


def test_a_table_has_columns_for_what_is_known_and_labels_for_the_rest():
    found = hosts(
        "Hostname,IP,Channel,Labels,role\nweb1,10.0.0.1,ssh,zone=eu;rack=7,web\nweb2,[::1]:22,,,\n",
        "csv",
    )
    assert found["web1"] == NewHost(
        "web1", {"zone": "eu", "rack": "7", "role": "web"}, "ssh", "10.0.0.1"
    )
    assert found["web2"] == NewHost("web2", {}, "simulated", "[::1]:22")


@pytest.mark.parametrize(
    ("cell", "labels"),
    [
        ("", {}),
        ("a=b", {"a": "b"}),
        ('"a=b,c=d"', {"a": "b", "c": "d"}),
        ("a=b;c=d,e", {"a": "b", "c": "d,e"}),
        ("a=b;;c=;", {"a": "b", "c": ""}),
        (" a = b = c ", {"a": "b = c"}),
        ('"a=say ""hi"""', {"a": 'say "hi"'}),
        ("a=b;a=b", {"a": "b"}),
    ],
)
def test_a_cell_of_labels(cell: str, labels: dict[str, str]):
    # A comma in a cell is a separator of cells unless it is quoted.
    quoted = f'"{cell}"' if "," in cell and not cell.startswith('"') else cell
    assert hosts(f"name,labels\na,{quoted}\n", "csv")["a"].labels == labels


@pytest.mark.parametrize("sign", [",", ";", "\t"])
def test_the_header_says_what_separates_the_cells(sign: str):
    text = "name|zone\na|eu\n".replace("|", sign)
    assert hosts(text, "csv")["a"].labels == {"zone": "eu"}


def test_comments_and_empty_lines_count_as_lines():
    text = "# ours\n\nname,zone\n# one\na,eu\n\n,,\n -b,x\n"
    assert the_mistake(text, "csv").line == 8


def test_a_cell_over_several_lines_does_not_lose_the_count():
    found = mistakes('name,note\na,"one\ntwo"\n-b,\n', "csv")
    assert [line for line, _ in found] == [2, 4]


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("zone,role\na,b\n", 1, "no column is the name"),
        ("name,,zone\n", 1, "column 2 has no name"),
        ("name,zone,zone\n", 1, "2 columns are"),
        ("name,host\n", 1, "2 columns are the 'name'"),
        ("name,ansible_password\na,x\n", 1, "may hold a secret"),
        ("name,a b\n", 1, "cannot be a label"),
        ("name,n\u00e4me\n", 1, "cannot be a label"),
        ("name,zone\na\n", 2, "has 2 cells, and this row 1"),
        ("name,zone\na,b,c\n", 2, "put a cell with a separator in it in quotes"),
        ('name,zone\na,"b\n', 2, "not CSV"),
        ('name,zone\na,"b"c\n', 2, "not CSV"),
        (f"name,zone\na,{'x' * 200_000}\n", 2, "field larger"),
        ("name,labels\na,zone\n", 2, "write it as key=value"),
        ("name,labels\na,=x\n", 2, "cannot be a label"),
        ("name,labels\na,name=x\n", 2, "selectors mean the host's name"),
        ("name,labels\na,ansible_user=x\n", 2, "may hold a secret"),
        ("name,labels\na,x=1;x=2\n", 2, "'x' is both '1' and '2'"),
        ("name,labels,zone\na,zone=eu,us\n", 2, "is both"),
        ("name,channel\na,carrier pigeon\n", 2, "is not one of simulated"),
        ("name,ip\na,-oProxyCommand=x\n", 2, "begins with a dash"),
        ("name,ip\na,b c\n", 2, "has spaces"),
        (f"name,ip\na,{'x' * 1_025}\n", 2, "more than 1024"),
        (f"name,zone\na,{'x' * 256}\n", 2, "at most 255"),
        ("name,zone\na,e\u202eu\n", 2, "visible characters"),
        (f"name,labels\na,{';'.join(f'l{n}=' for n in range(257))}\n", 2, "257 labels"),
        ("name,zone\n,eu\n", 2, "name: is empty"),
    ],
)
def test_what_a_table_cannot_say(text: str, line: int, said: str):
    found = the_mistake(text, "csv")
    assert found.line == line
    assert said in found.text
    assert found.text.isascii()
    assert len(found.text) < 300


# JSON.


def test_a_list_may_stand_alone_or_below_hosts():
    one = '{"name": "a", "channel": "ssh", "address": "x", "labels": {"n": 7, "t": true}}'
    wanted = {"a": NewHost("a", {"n": "7", "t": "true"}, "ssh", "x")}
    for text in (f"[{one}]", f'{{"hosts": [{one}]}}', f' {{ "\\u0068osts" :\n[ {one} ] }} '):
        assert hosts(text, "json") == wanted


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ('[{"name": "a"},\n{]', 2, "not JSON: "),
        ('[{"name": "a"}', 1, "not JSON: "),
        ('[{"name": "a"}] x', 1, "not JSON: Extra data at column 17"),
        ("null", 1, "expected a list of hosts"),
        ('"a"', 1, "expected a list of hosts"),
        ("NaN", 1, "expected a list of hosts"),
        ('{"hosts": {}}', 1, "expected a list of hosts"),
        ('{"hosts": [], "vars": {}}', 1, "'vars' is not one of hosts"),
        ('{"_meta": {}, "all": {}}', 1, "--list --yaml"),
        ('{"hosts": [], "hosts": []}', 1, "'hosts' is there twice"),
        ("[" * 100_000, 1, "nested too deep"),
        ('["a"]', 1, "hosts[0]: expected an object"),
        ("[\nnull]", 2, "not null"),
        ("[[]]", 1, "not a list"),
        ("[NaN]", 1, "not NaN, which JSON has not"),
        ("[{}]", 1, "hosts[0].name: is missing"),
        ('[{"name": 1}]', 1, "hosts[0].name: expected text, not a number"),
        ('[{"name": true}]', 1, "not a boolean"),
        ('[{"name": null}]', 1, "not null"),
        ('[{"name": {}}]', 1, "not an object"),
        ('[{"name": ""}]', 1, "is empty"),
        ('[{"name": "a\\u0000b"}]', 1, "NUL"),
        ('[{"name": "\\ud800"}]', 1, "surrogate"),
        ('[{"name": "a", "state": "ACTIVE"}]', 1, "'state' is not one of name"),
        ('[{"name": "a", "name": "b"}]', 1, "'name' is there twice"),
        ('[{"name": "a", "channel": "smoke"}]', 1, "hosts[0].channel: 'smoke' is not one of"),
        ('[{"name": "a", "channel": null}]', 1, "expected text, not null"),
        ('[{"name": "a", "address": 1}]', 1, "expected text, not a number"),
        ('[{"name": "a", "address": "\\ud800"}]', 1, "invisible"),
        ('[{"name": "a", "labels": []}]', 1, "hosts[0].labels: expected an object"),
        ('[{"name": "a", "labels": "x"}]', 1, "expected an object, not text"),
        ('[{"name": "a", "labels": {"x": null}}]', 1, "'x' is null"),
        ('[{"name": "a", "labels": {"x": {}}}]', 1, "'x' is an object"),
        ('[{"name": "a", "labels": {"x": Infinity}}]', 1, "Infinity, which JSON has not"),
        ('[{"name": "a", "labels": {"x": "1", "x": "2"}}]', 1, "'x' is there twice"),
        ('[{"name": "a", "labels": {"x": "\\ud800"}}]', 1, "hosts[0].labels.x: "),
        ('[{"name": "a", "labels": {"\\ud800": "x"}}]', 1, "cannot be a label"),
        ('[{"name": "a", "labels": {"": "x"}}]', 1, "cannot be a label"),
        (f'[{{"name": "a", "labels": {{"x": {"9" * 5_000}}}}}]', 1, "at most 255"),
        ('[{"name": "a", "labels": {"name": "x"}}]', 1, "selectors mean"),
        ('[{"name": "a", "labels": {"ansible_x": "x"}}]', 1, "may hold a secret"),
    ],
)
def test_what_a_list_of_objects_cannot_say(text: str, line: int, said: str):
    found = the_mistake(text, "json")
    assert found.line == line
    assert said in found.text
    assert found.text.isascii()
    assert len(found.text) < 300


def test_every_object_that_is_wrong_is_named_by_its_line_and_place():
    text = '{"hosts": [\n  {"name": "a]\\"[{"},\n\n  {"name":\n"b"}, {"nome": "c"},\n7\n]}'
    assert mistakes(text, "json") == [
        Mistake(2, "hosts[0].name: 'a]\"[{' is not a host name: begin with a letter or digit, "
                   "and use only letters, digits and . _ : -"),
        Mistake(5, "hosts[2]: 'nome' is not one of name, address, channel, labels"),
        Mistake(6, "hosts[3]: expected an object with name, address, channel, labels, "
                   "not a number"),
    ]  # fmt: skip
