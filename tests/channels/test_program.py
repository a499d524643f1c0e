"""What a job says is what the host gets: as arguments of their own, and secrets as none of them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onward.channels.base import Delivery, Target
from onward.channels.program import (
    ARGUMENTS_MAX,
    Program,
    check_masked,
    check_template,
    program_for,
    program_of,
)
from onward.errors import HostRefused, InvalidInput

# What a program can be given at all; a zero byte ends an argument.
ANY_TEXT = st.text(st.characters(exclude_characters="\0"))


def filled(*argv: str, masked: tuple[str, ...] = (), **params: object) -> Program:
    return program_of(params, argv=argv, masked=masked)


def own(masked: tuple[str, ...] = (), **params: object) -> Program:
    return program_of(params, argv=None, masked=masked)


@given(ANY_TEXT, ANY_TEXT)
def test_a_parameter_stays_within_its_argument_whatever_it_holds(one: str, two: str):
    made = filled("say", "{one}", "--two={two}", one=one, two=two)
    assert made.argv == ("say", one, f"--two={two}")


@given(st.lists(ANY_TEXT, max_size=20))
def test_a_list_becomes_an_argument_each_where_it_stands_alone(files: list[str]):
    assert filled("rm", "--", "{files}", "x", files=files).argv == ("rm", "--", *files, "x")


@given(ANY_TEXT.map(lambda text: text.replace("{", "").replace("}", "")))
def test_what_is_no_name_is_taken_as_it_is(text: str):
    assert filled("say", text).argv == ("say", text)
    assert filled("say", "{{" + text + "}}").argv == ("say", "{" + text + "}")


def test_a_value_that_looks_like_a_name_is_not_filled_in_again():
    assert filled("say", "{a}", a="{b}", b="secret").argv == ("say", "{b}")


@pytest.mark.parametrize(
    ("value", "written"),
    [(True, "true"), (False, "false"), (7, "7"), (-0.5, "-0.5"), (2**63, "9223372036854775808")],
)
def test_numbers_and_truth_are_written_as_in_json(value: object, written: str):
    assert filled("say", "{it}", it=value).argv == ("say", written)


def test_a_job_may_say_more_than_its_type_asks_for():
    assert filled("uptime", note="for the minutes") == Program(("uptime",))


@pytest.mark.parametrize(
    ("argv", "params", "field"),
    [
        (["say", "{it}"], {}, "params.it"),
        (["say", "x{it}"], {"it": None}, "params.it"),
        (["say", "x{it}"], {"it": ["a"]}, "params.it"),
        (["say", "{it}"], {"it": {"a": 1}}, "params.it"),
        (["say", "{it}"], {"it": ["a", ["b"]]}, "params.it[1]"),
        (["say", "{it}"], {"it": "a\0b"}, "params.it"),
        (["say", "{it}"], {"it": ["a", "\0"]}, "params.it[1]"),
        (["{it}"], {"it": []}, "params"),
        (["{it}", "x"], {"it": ""}, "params"),
        (["{it}", "x"], {"it": ["", "x"]}, "params"),
        (["say", "{it}"], {"it": ["x"] * ARGUMENTS_MAX}, "params"),
    ],
)
def test_what_does_not_fill_an_argument_is_refused_by_its_name(
    argv: list[str], params: dict[str, Any], field: str
):
    with pytest.raises(InvalidInput) as refused:
        program_of(params, argv=argv, masked=())
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("argv", "field"),
    [
        ([], "argv"),
        (["x"] * (ARGUMENTS_MAX + 1), "argv"),
        ([""], "argv[0]"),
        (["say", "a\0b"], "argv[1]"),
        *(
            (["say", wrong], "argv[1]")
            for wrong in ["{", "}", "a{", "{a", "a}", "{{}", "{}}", "{a}}"]
        ),
        *((["say", wrong], "argv[1]") for wrong in ["{}", "{ a}", "{1}", "{a-b}", "{a.b}", "{é}"]),
        (["say", "{seen}", "--token={token}"], "argv[2]"),
    ],
)
def test_arguments_that_no_job_could_fill_are_refused_by_their_place(argv: list[str], field: str):
    with pytest.raises(InvalidInput) as refused:
        check_template(argv, ["token"])
    assert refused.value.field == field


def test_a_good_template_is_taken():
    check_template(["awk", "{{print $1}}", "{file}", "{_a1}{b}"], ["token", "A9_"])


@pytest.mark.parametrize(
    "masked",
    [[""], ["a b"], ["1a"], ["a-b"], ["é"], ["a\n"], ["fine", "="], ["a", "a"], ["a", "A"]],
)
def test_names_that_could_not_stand_in_an_environment_are_refused(masked: list[str]):
    with pytest.raises(InvalidInput, match=r"masked\["):
        check_masked(masked)


@given(ANY_TEXT)
def test_a_secret_is_in_the_environment_and_in_no_argument_nor_in_the_words_for_the_program(
    told: str,
):
    secret = f"s3cret{told}"
    made = filled("login", "{user}", masked=("pass_word",), user="ann", pass_word=secret)
    assert made.argv == ("login", "ann")
    assert made.secrets == {"ONWARD_PASS_WORD": secret}
    assert not made.env
    assert "s3cret" not in repr(made)
    assert "s3cret" not in str(made)


def test_a_secret_that_was_not_given_is_no_variable():
    assert filled("login", masked=("token",)).secrets == {}


def test_a_job_says_itself_what_is_run_if_its_type_does_not():
    argv = ["printf", "%s", "{not} a name", ""]
    assert own(argv=argv).argv == tuple(argv)
    script = "echo $HOME | tee 'x y'\n"
    assert own(shell=script).argv == ("sh", "-c", script)


def test_a_job_may_say_where_and_as_whom_and_with_what():
    made = own(
        ("token",),
        argv=["make"],
        env={"LANG": "C", "EMPTY": ""},
        cwd="/srv/a b",
        stdin="yes\n",
        user="www-data",
        token="t0ken",  # noqa: S106 - what is tested
    )
    assert made == Program(
        ("make",),
        env={"LANG": "C", "EMPTY": ""},
        cwd="/srv/a b",
        stdin="yes\n",
        user="www-data",
        secrets={"ONWARD_TOKEN": "t0ken"},
    )


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({}, "params"),
        ({"argv": ["a"], "shell": "b"}, "params"),
        ({"argv": []}, "params.argv"),
        ({"argv": "uptime"}, "params.argv"),
        ({"argv": ["x"] * (ARGUMENTS_MAX + 1)}, "params.argv"),
        ({"argv": ["", "x"]}, "params.argv[0]"),
        ({"argv": ["a", 1]}, "params.argv[1]"),
        ({"argv": ["a", "b\0"]}, "params.argv[1]"),
        ({"shell": ["a"]}, "params.shell"),
        ({"shell": "a\0"}, "params.shell"),
        ({"shell": "a", "env": []}, "params.env"),
        ({"shell": "a", "env": {"A=B": "c"}}, "params.env"),
        ({"shell": "a", "env": {"": "c"}}, "params.env"),
        ({"shell": "a", "env": {"A": 1}}, "params.env.A"),
        ({"shell": "a", "env": {"A": "\0"}}, "params.env.A"),
        ({"shell": "a", "cwd": 1}, "params.cwd"),
        ({"shell": "a", "stdin": {}}, "params.stdin"),
        ({"shell": "a", "user": "-u root"}, "params.user"),
        ({"shell": "a", "user": ""}, "params.user"),
        ({"shell": "a", "zeal": 1, "servce": "x"}, "params.servce"),
    ],
)
def test_a_job_that_does_not_say_what_to_run_is_refused_by_the_field(
    params: dict[str, Any], field: str
):
    with pytest.raises(InvalidInput) as refused:
        program_of(params, argv=None, masked=())
    assert refused.value.field == field


def test_no_refusal_repeats_a_secret():
    for params in ({"token": ["s3cret"]}, {"token": {"a": "s3cret"}}, {"token": "s3cret\0"}):
        for argv in (["login"], None):
            with pytest.raises(InvalidInput) as refused:
                program_of({"shell": "x", **params}, argv=argv, masked=["token"])
            assert "s3cret" not in str(refused.value)
            assert refused.value.field == "params.token"


def test_to_a_channel_it_is_a_refusal_of_the_host():
    target = Target(1, "h1", "10.0.0.1")
    wanted = Delivery("17", 1, target, "LOGIN", {"user": "ann"}, 5.0, argv=["login", "{user}"])
    assert program_for(wanted).argv == ("login", "ann")
    with pytest.raises(HostRefused, match=r"params\.user: is missing"):
        program_for(wanted._replace(params={}))
