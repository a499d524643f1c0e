"""Inventories of Ansible's: groups become labels, secrets do not, and every mistake has a line."""

from __future__ import annotations

from textwrap import dedent

import pytest

from onward.channels.ssh.address import parse
from onward.fleet import inventory
from onward.fleet.inventory import Form, Mistake
from onward.store.hosts import NewHost
from tests.fleet.inventories import hosts, mistakes, the_mistake

INI = """\
lone ansible_host=10.0.0.9

[web]   # the front
web[01:03].example.com rack=7 title="front door"   # a comment
; another

[db]
db1 ansible_host=2001:db8::1 ansible_port=5432
db2:2222 ansible_connection=ssh

[prod:children]
web
db   # as well

[web:vars]
zone = "eu"
tier=1

[prod:vars]
zone=us
owner=ann # not a comment here

[all:vars]
site=north
"""

YAML = """\
all:
  hosts:
    lone: {ansible_host: 10.0.0.9}
  vars:
    site: north
  children:
    prod:
      vars: {zone: us, owner: "ann # not a comment here"}
      children:
        web:
          hosts:
            web[01:03].example.com:
              rack: 7
              title: front door
          vars: {zone: eu, tier: 1}
        db:
          hosts:
            db1: {ansible_host: "2001:db8::1", ansible_port: 5432}
            db2: {ansible_port: 2222, ansible_connection: ssh}
"""

PROD = {"group.prod": "true", "owner": "ann # not a comment here", "site": "north"}
WEB = {
    **PROD, "group.web": "true", "rack": "7", "title": "front door", "tier": "1", "zone": "eu"
}  # fmt: skip
DB = {**PROD, "group.db": "true", "zone": "us"}
FLEET = {
    "lone": NewHost("lone", {"site": "north"}, "simulated", "10.0.0.9"),
    **{
        name: NewHost(name, WEB, "simulated", "")
        for name in ("web01.example.com", "web02.example.com", "web03.example.com")
    },
    "db1": NewHost("db1", DB, "simulated", "[2001:db8::1]:5432"),
    "db2": NewHost("db2", DB, "ssh", "db2:2222"),
}


@pytest.mark.parametrize(("form", "text"), [("ini", INI), ("yaml", YAML)])
def test_a_fleet_with_groups_children_and_variables(form: Form, text: str):
    assert hosts(text, form) == FLEET


# Ranges.


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("web", ["web"]),
        ("web[1:3]", ["web1", "web2", "web3"]),
        ("web[01:03]", ["web01", "web02", "web03"]),
        ("web[08:11]", ["web08", "web09", "web10", "web11"]),
        ("web[0:2]", ["web0", "web1", "web2"]),
        ("web[:2]", ["web0", "web1", "web2"]),
        ("web[1:9:4]", ["web1", "web5", "web9"]),
        ("web[1:1]", ["web1"]),
        ("db-[a:c]", ["db-a", "db-b", "db-c"]),
        ("db-[a:e:2]", ["db-a", "db-c", "db-e"]),
        ("db-[y:B]", ["db-y", "db-z", "db-A", "db-B"]),
        ("r[1:2]n[1:2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
        ("a[1:2].example.com", ["a1.example.com", "a2.example.com"]),
        ("2001:db8::1", ["2001:db8::1"]),
    ],
)
def test_a_range_stands_for_all_of_its_names(pattern: str, names: list[str]):
    assert list(hosts(f"{pattern}\n", "ini")) == names
    assert list(hosts(f"all: {{hosts: {{'{pattern}': }}}}\n", "yaml")) == names


@pytest.mark.parametrize(
    ("line", "address"),
    [
        ("web:2222", "web:2222"),
        ("web ansible_port=22", "web:22"),
        ("web ansible_ssh_port=22", "web:22"),
        ("web ansible_host=b ansible_port=22", "b:22"),
        ("web ansible_ssh_host=b", "b"),
        ("web ansible_host=::1", "::1"),
        ("web ansible_host=::1 ansible_port=22", "[::1]:22"),
        ("web:22 ansible_port=22", "web:22"),
        ("web", ""),
    ],
)
def test_an_address_is_the_host_and_the_port(line: str, address: str):
    assert hosts(line, "ini")["web"].address == address


OVER_SSH = {
    "web": "web",
    "web ansible_host=b": "b",
    "web ansible_host=::1": "[::1]",
    "web ansible_user=ann": "ann@web",
    "web ansible_ssh_user=ann": "ann@web",
    "web:2222 ansible_user=ann ansible_host=b": "ann@b:2222",
    "web ansible_ssh_common_args='-J bastion'": "web?jump=bastion",
    "web ansible_ssh_common_args='-C -Jann@bastion:99,b'": "web?jump=ann@bastion:99&jump=b",
    "web ansible_ssh_common_args='-o ProxyJump=bastion'": "web?jump=bastion",
    "web ansible_ssh_common_args='-oproxyjump=bastion'": "web?jump=bastion",
    """web ansible_ssh_common_args='-o "ProxyJump bastion"'""": "web?jump=bastion",
    "web ansible_ssh_common_args='-o ProxyJump=none'": "web",
    """web ansible_ssh_common_args='-o ProxyCommand="ssh -W %h:%p -q ann@bastion"'""": (
        "web?jump=ann@bastion"
    ),
    "web ansible_ssh_common_args='-o StrictHostKeyChecking=no -o'": "web",
}


@pytest.mark.parametrize("line", OVER_SSH)
def test_over_ssh_the_address_says_who_logs_in_and_through_which_machines(line: str):
    address = hosts(line, "ini", channel="ssh")["web"].address
    assert address == OVER_SSH[line]
    parse(address)  # the channel understands it


def test_who_logs_in_and_the_way_are_handed_down_like_other_variables():
    text = dedent("""\
        [inside]
        a
        b ansible_user=bob
        c ansible_connection=mqtt ansible_host=c1
        [inside:vars]
        ansible_user=ann
        ansible_connection=ssh
        ansible_ssh_common_args=-J bastion
        """)
    found = {name: host.address for name, host in hosts(text, "ini").items()}
    assert found == {"a": "ann@a?jump=bastion", "b": "bob@b?jump=bastion", "c": "c1"}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("web ansible_user=a:b", "cannot be the name of a user"),
        ("web ansible_user=-x", "cannot be the name of a user"),
        ("web ansible_user={{who}}", "not plain text"),
        ("web ansible_host=a?jump=b", "neither the name of a machine nor its address"),
        ("web ansible_ssh_common_args='-J a:b:c'", "is not [user@]host[:port]"),
        ("web ansible_ssh_common_args='-J a:99999'", "not a number up to 65535"),
        ("web ansible_ssh_common_args='-J a&b'", "neither the name of a machine"),
        ("""web ansible_ssh_common_args="-J 'a" """, "a quote is not closed"),
        ("web ansible_ssh_common_args='-oProxyCommand=nc'", "write a ProxyJump"),
    ],
)
def test_what_cannot_be_an_address_over_ssh(line: str, said: str):
    (mistake,) = inventory.read(line.encode(), "ini", channel="ssh").mistakes
    assert said in mistake.text
    assert mistake.text.isascii()


def test_an_address_of_ipv6_with_a_port_stands_in_brackets():
    assert hosts("[2001:db8::1]:2222\n", "ini") == {
        "2001:db8::1": NewHost("2001:db8::1", {}, "simulated", "[2001:db8::1]:2222")
    }
    assert hosts("web[1:2]:22\n", "ini")["web2"].address == "web2:22"


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("web[3:1]", "begin with the lower end"),
        ("web[c:a]", "begin with the lower end"),
        ("web[01:100]", "the same number of digits"),
        ("web[1:9:0]", "the step is at least 1"),
        ("web[a:9]", "write it as [01:20]"),
        ("web[1:]", "write it as [01:20]"),
        ("web[-1:2]", "write it as [01:20]"),
        ("web[1:2", "not a host name"),
        ("web[1]", "not a host name"),
        ("web[aa:bb]", "write it as [01:20]"),
        ("w" + "[1:1]" * 9, "more than 8 ranges"),
        ("w" * 1_025, "too many for a host"),
        ("w[1:2]" + "x" * 255, "more than the 255"),
        ("web:99999", "not a number up to 65535"),
        ("web:0", "not a number up to 65535"),
        ("web:22 ansible_port=23", "ansible_port is '23' here and '22' in line 1"),
        ("web ansible_port=ssh", "not a number up to 65535"),
        ("web ansible_port=\uff12\uff12", "not a number up to 65535"),
        ("web ansible_host={{other}}", "not plain text; write the address itself"),
        ("web ansible_host=-oProxyCommand=x", "begins with a dash"),
    ],
)
def test_what_a_pattern_cannot_say(pattern: str, said: str):
    line, text = the_mistake(f"\n{pattern.replace('line 1', 'line 2')}\n", "ini")
    assert line == 2
    assert said.replace("line 1", "line 2") in text
    assert text.isascii()
    assert len(text) < 300


# Groups and their variables.


def test_a_childs_value_goes_before_its_parents_and_a_hosts_own_before_all():
    found = hosts(
        dedent("""\
            [a]
            h1
            h2 v=own
            [b:children]
            a
            [a:vars]
            v=child
            [b:vars]
            v=parent
            w=parent
            [all:vars]
            v=all
            w=all
            x=all
            """),
        "ini",
    )
    of_groups = {"group.a": "true", "group.b": "true"}
    assert found["h1"].labels == {**of_groups, "v": "child", "w": "parent", "x": "all"}
    assert found["h2"].labels == {**of_groups, "v": "own", "w": "parent", "x": "all"}


@pytest.mark.parametrize(
    ("of_a", "of_b", "value"), [("", "", "b"), ("5", "", "a"), ("5", "7", "b"), ("", "7", "b")]
)
def test_of_groups_at_one_depth_the_higher_priority_wins_then_the_later_name(
    of_a: str, of_b: str, value: str
):
    def group(name: str, priority: str) -> str:
        said = f"ansible_group_priority={priority}\n" if priority else ""
        return f"[{name}]\nh\n[{name}:vars]\nv={name}\n{said}"

    assert hosts(group("b", of_b) + group("a", of_a), "ini")["h"].labels["v"] == value


def test_a_host_in_many_places_has_the_groups_and_variables_of_all():
    text = "h one=1\n[a]\nh two=2\n[b:hosts]\nh one=1\n[c]\n"
    assert hosts(text, "ini")["h"].labels == {
        "group.a": "true",
        "group.b": "true",
        "one": "1",
        "two": "2",
    }


def test_groups_and_children_may_come_in_any_order():
    text = "[p:vars]\nv=1\n[p:children]\nc\n[c]\nh\n"
    assert hosts(text, "ini")["h"].labels == {"group.c": "true", "group.p": "true", "v": "1"}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("ansible_password", "x"),
        ("ansible_become_pass", "x"),
        ("ansible_user", "root"),
        ("db_password", "x"),
        ("DB_PASSWD", "x"),
        ("passphrase", "x"),
        ("api_key", "x"),
        ("apikey", "x"),
        ("github_token", "x"),
        ("client-secret", "x"),
        ("aws_credentials", "x"),
        ("ssh_private", "x"),
        ("ssh_key", "x"),
        ("vault_thing", "x"),
        ("db.pass", "x"),
        ("pin", "1234"),
        ("basic_auth", "x"),
        ("name", "other"),
        ("note", "$ANSIBLE_VAULT;1.1;AES256"),
        ("note", "{{ lookup('env', 'HOME') }}"),
        ("note", "{% if x %}y{% endif %}"),
        ("note", "x" * 256),
    ],
)
def test_what_may_be_secret_or_was_meant_for_another_program_is_no_label(key: str, value: str):
    assert hosts(f"h {key}='{value}'\n".replace("''", "'"), "ini")["h"].labels == {}
    quoted = value.replace("'", "''")
    for where in ("hosts: {h: {%s}}", "hosts: {h: }, vars: {%s}"):
        inside = where % f"{key}: '{quoted}'"
        assert hosts(f"all: {{{inside}}}\n", "yaml")["h"].labels == {}


def test_words_that_only_look_like_secrets_are_labels():
    labels = {"keyboard": "de", "monkey": "1", "passenger": "2", "spinner": "3", "author": "ann"}
    words = " ".join(f"{key}={value}" for key, value in labels.items())
    assert hosts(f"h {words}\n", "ini")["h"].labels == labels


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("[web\nh\n", 1, "write [group] or [group:vars]"),
        ("[]\n", 1, "write [group] or [group:vars]"),
        ("[a b]\n", 1, "write [group] or [group:vars]"),
        ("[a:b:c]\n", 1, "write [group] or [group:vars]"),
        ("h\n[web:var]\nx\n", 2, "'var' is not one of hosts, vars, children"),
        ("h\n[wbe:vars]\nx=1\n", 3, "there is no group 'wbe'"),
        ("[a]\nh\n[p:children]\nb\n", 4, "there is no group 'b'"),
        ("[a]\nh\n[a:children]\na\n", 1, "in itself"),
        ("[a]\nh\n[a:children]\nb\n[b:children]\na\n", 1, "in itself"),
        ("[a:children]\nall\n[all]\nh\n", 2, "cannot be in another group"),
        ("[\u00e4]\nh\n", 1, "cannot be a label"),
        ("h rack\n", 1, "'rack' is none; write it as key=value"),
        ("h =7\n", 1, "write it as key=value"),
        ("h rack = 7\n", 1, "write it as key=value"),
        ('h title="front\n', 1, "close the quote"),
        ("h\n'' x=1\n", 2, "names no host"),
        ("h\n\\\n", 2, "close the quote"),
        ("h group.web=true\n", 1, "names that begin with group. are for groups"),
        ("h r\u00e4ck=7\n", 1, "cannot be a label"),
        ("h x=1\n[a]\nh x=2\n", 3, "x is '2' here and '1' in line 1; keep one"),
        ("[a]\nh\n[a:vars]\nx=1\nx=2\n", 5, "x is '2' here and '1' in line 4; keep one"),
        ("h x=1 x=2\n", 1, "keep one"),
        ("[a]\nh\n[a:vars]\nansible_group_priority=high\n", 4, "not a number"),
        (f"h {'x' * 70_000}\n", 1, "more than 65536"),
        ("all:\n", 1, "is the file in YAML?"),
        (f"h {' '.join(f'l{n}=1' for n in range(257))}\n", 1, "257 labels"),
    ],
)
def test_what_an_ini_file_cannot_say(text: str, line: int, said: str):
    found = the_mistake(text, "ini")
    assert found.line == line
    assert said in found.text
    assert found.text.isascii()
    assert len(found.text) < 300


def test_what_stands_below_a_section_that_cannot_be_read_is_not_blamed():
    assert the_mistake("[web:var]\nx=1 2 3\n-rf\n", "ini").line == 1


def test_every_mistake_is_told_at_once():
    text = "-a\n[web]\nb x\nc\n[web:vars]\nv\n[p:children]\nq\n"
    assert [line for line, _ in mistakes(text, "ini")] == [1, 3, 6, 8]


# YAML.


def test_aliases_merges_and_tags_that_are_harmless():
    text = dedent("""\
        x: &x
          vars: &vars {zone: eu, rack: 1}
        web:
          hosts:
            a: {<<: *vars, rack: 2}
            b: {<<: [*vars, {rack: 3, tier: 4}]}
            c: {v: !!str 7, u: !unsafe 'x', w: "7", n: null, t: ~, e: , q: "~", l: [1], m: {}}
            d: !!map {}
        """)
    found = hosts(text, "yaml")
    assert found["a"].labels == {"group.web": "true", "zone": "eu", "rack": "2"}
    assert found["b"].labels == {"group.web": "true", "zone": "eu", "rack": "1", "tier": "4"}
    assert found["c"].labels == {"group.web": "true", "v": "7", "u": "x", "w": "7", "q": "~"}
    assert found["d"].labels == {"group.web": "true"}


def test_a_group_may_be_spoken_of_in_many_places():
    text = "web: {hosts: {a: }}\nall: {children: {web: {hosts: {b: }}}, vars: {v: 1}}\n"
    assert [host.labels for host in hosts(text, "yaml").values()] == [
        {"group.web": "true", "v": "1"}
    ] * 2


def test_an_encrypted_value_is_no_label_and_no_mistake():
    text = dedent("""\
        all:
          hosts:
            a:
              note: !vault |
                $ANSIBLE_VAULT;1.1;AES256
                6133623
              other: !vault-encrypted x
              zone: eu
        """)
    assert hosts(text, "yaml")["a"].labels == {"zone": "eu"}


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("all:\n  hosts:\n   a:\n  b: {\n", 5, "not YAML: "),
        ("all:\n\thosts:\n", 2, "not YAML: "),
        ("all: &a\n  hosts: *b\n", 2, "no whole &b before this alias"),
        ("all: &a\n  children: *a\n", 2, "no whole &a before this alias"),
        ("all:\n  hosts: {a: }\n---\nall:\n", 3, "a second document begins"),
        ("- a\n- b\n", 1, "expected a mapping of groups"),
        ("\njust text\n", 2, "expected a mapping of groups"),
        ("all: 7\n", 1, "expected a mapping of hosts, children, vars"),
        ("all:\n  hosts: [a, b]\n", 2, "expected a mapping of hosts, each with a colon"),
        ("all:\n  hosts: a\n", 2, "expected a mapping of hosts, each with a colon"),
        ("all:\n  hosts:\n    a: 7\n", 3, "expected a mapping of variables"),
        ("all:\n  children: [a]\n", 2, "expected a mapping of groups, each with a colon"),
        ("all:\n  roles: {}\n", 2, "'roles' is not one of hosts, children, vars"),
        ("all:\n  hosts: {a: }\n  vars: [x]\n", 3, "expected a mapping of variables"),
        ("plugin: aws_ec2\nregions: []\n", 1, "the configuration of a plugin"),
        ("all:\n  hosts:\n    a:\n    a:\n", 4, "the key 'a' is already in line 3"),
        ("all:\n  hosts:\n    ? [a]\n    : x\n", 3, "a key has to be text"),
        ("all:\n  hosts:\n    ~: {}\n", 3, "a key has to be text"),
        ("all:\n  hosts:\n    a: {<<: 7}\n", 3, "<< takes a mapping"),
        ("all:\n  hosts:\n    a: {<<: [7]}\n", 3, "<< takes a mapping"),
        ("all:\n  hosts:\n    a: {x: !!python/object/apply:os.getcwd []}\n", 3, "is not known"),
        ("all:\n  hosts: !!python/dict {a: }\n", 2, "is not known"),
        ("all:\n  hosts:\n    a: {x: !env HOME}\n", 3, "the tag '!env' is not known"),
        ("all:\n  hosts:\n    a: {x: !<tag:example.com,2000:x> 1}\n", 3, "is not known"),
        ("all:\n  hosts:\n    a: {r\u00e4ck: 1}\n", 3, "cannot be a label"),
        ("all:\n  children:\n    all: {}\n", 3, "cannot be in another group"),
        ("all:\n  hosts:\n    a: {x: 1}\nw:\n  hosts:\n    a: {x: 2}\n", 6, "'1' in line 3"),
        ("%FOO\n---\nall:\n", 1, "not YAML: "),
        ("all: " + "[" * 1_000, 1, "nested deeper than 64"),
        ("all: " + "{a: " * 1_000, 1, "nested deeper than 64"),
        ("\n".join(f"{' ' * n}a:" for n in range(100)), 65, "nested deeper than 64"),
    ],
)
def test_what_a_yaml_file_cannot_say(text: str, line: int, said: str):
    found = the_mistake(text, "yaml")
    assert found.line == line
    assert said in found.text
    assert len(found.text) < 300


def test_a_mistake_in_one_host_does_not_hide_the_next():
    text = "all:\n  hosts:\n    -a:\n    b: 7\n    c:\n  rolls:\n"
    assert mistakes(text, "yaml") == [
        Mistake(3, "host: '-a' is not a host name: begin with a letter or digit, "
                   "and use only letters, digits and . _ : -"),
        Mistake(4, "host: expected a mapping of variables"),
        Mistake(6, "group: 'rolls' is not one of hosts, children, vars"),
    ]  # fmt: skip
