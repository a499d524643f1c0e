"""What is said to the shell of a host, so that a program is run with exactly these arguments.

1. The command that is asked for is the same for every program: `/bin/sh`, which reads one line from
   its input and carries it out. So no login shell has to understand our quotation marks, nothing of
   a program is seen in the arguments of a shell, and a line that did not arrive whole is not run.
2. The line sets variables and the directory, says `onward:begin:` with the number of the process,
   and becomes the program. Whoever has not said so has not begun.
3. What follows the line is the program's own input.
4. For another user, the line becomes `sudo -n`. If there is something to set first, sudo runs the
   same shell, which reads a second line; otherwise it runs the program itself, so that rules which
   allow only certain programs are kept.
5. What is to be stopped is what belongs to the process that said so: its children, and its group
   and session. They are asked to end, and ended if they have not after a grace.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from onward.channels.program import Program
from onward.errors import HostRefused

BEGUN = re.compile(rb"onward:begin:(\d{1,10}):(\d{1,10})\n")

# Without a word that any shell takes for its own: this one goes through the login shell.
_READ: Final = 'IFS= read -r onward_line && eval "$onward_line"'
COMMAND: Final = f"exec /bin/sh -c '{_READ}' onward"
_NOT_ALLOWED: Final = "sudo does not allow this without a password"

_is_plain = re.compile(r"[A-Za-z0-9_./:=@%+,-]+", re.ASCII).fullmatch

# Each pass over /proc adds who is a child of those that are already found, until nobody is added;
# `read` fails for those who have ended meanwhile. Where there is no /proc, the groups have to do.
_STOP: Final = """\
onward_find() { \
while :; do onward_before=$onward_found; \
for onward_file in /proc/[0-9]*/stat; do \
{ IFS= read -r onward_stat <"$onward_file"; } 2>/dev/null || continue; \
onward_pid=${onward_file#/proc/}; onward_pid=${onward_pid%/stat}; \
case $onward_found in *" $onward_pid "*) continue;; esac; \
set -- ${onward_stat##*\\) }; \
case $onward_found in *" $2 "*) ;; *) \
case $onward_roots in *" $3 "*|*" $4 "*) ;; *) continue;; esac;; esac; \
onward_found="$onward_found$onward_pid "; done; \
[ "$onward_found" = "$onward_before" ] && return; done; }; \
onward_left() { for onward_pid in $onward_found; do \
kill -0 $onward_pid 2>/dev/null || continue; \
onward_stat=; { IFS= read -r onward_stat </proc/$onward_pid/stat; } 2>/dev/null; \
case ${onward_stat##*\\) } in Z*) ;; *) return 0;; esac; done; return 1; }; \
onward_send() { kill -s $1 $onward_found 2>/dev/null; \
for onward_pid in $onward_roots; do kill -s $1 -- -$onward_pid 2>/dev/null; done; }; \
onward_wait() { while [ $1 -gt 0 ] && onward_left; do sleep 0.1 2>/dev/null || sleep 1; \
set -- $(($1 - 1)); done; }; \
onward_find; onward_send TERM; onward_wait {tenths}; \
onward_left && { onward_find; onward_send KILL; onward_wait 20; }; \
if onward_left; then exit 1; else exit 0; fi"""


class Begun(NamedTuple):
    """The processes of a program that runs."""

    program: int
    shell: int  # the first of them, which leads their session


def lines_for(program: Program) -> bytes:
    """What the shell is to read, and after it the program; half a character is refused."""
    return _lines_for(program) + (_encoded(program.stdin) if program.stdin else b"")


def _lines_for(program: Program) -> bytes:
    own_shell = program.env or program.secrets or program.cwd is not None
    if program.user is None:
        return _line(_run(program, "onward:begin:$$:$$"))
    if own_shell:
        become = _words(("sudo", "-n", "-u", program.user, "--", "/bin/sh", "-c", _READ, "onward"))
        return _line(f"exec {become} $$") + _line(_run(program, "onward:begin:$$:$1"))
    asked = _words(("-u", program.user, "--", *program.argv))
    # The question comes first, because afterwards sudo's refusal would look like the program's.
    no = f"{{ echo {_quoted(_NOT_ALLOWED)} >&2; exit 1; }}"
    may = f"sudo -n -l {asked} </dev/null >/dev/null || {no}"
    return _line(f"{may}; echo onward:begin:$$:$$ && exec sudo -n {asked}")


def lines_to_stop(begun: Begun, *, user: str | None, grace_s: float) -> bytes:
    """What a second shell is to read to stop a program; it ends with 0 once nothing is left."""
    roots = f" {begun.program} {begun.shell} "
    stop = _STOP.replace("{tenths}", str(max(1, round(grace_s * 10))))
    line = _line(f"onward_roots='{roots}'; onward_found=$onward_roots; {stop}")
    if user is None:
        return line
    become = _words(("sudo", "-n", "-u", user, "--", "/bin/sh", "-c", _READ, "onward"))
    return _line(f"exec {become}") + line


def _run(program: Program, begin: str) -> str:
    parts = [
        f"export {name}={_quoted(value)}"
        for name, value in {**program.env, **program.secrets}.items()
    ]
    if program.cwd is not None:
        # A name that begins with a dash is an option, or where one was before, to some shells.
        folder = program.cwd if program.cwd.startswith("/") else f"./{program.cwd}"
        parts.append(f"cd {_quoted(folder)}")
    if program.argv[0].startswith("-"):
        raise HostRefused(f"{program.argv[0]!a:.80} would be an option: write its whole path.")
    parts += [f"echo {begin}", f"exec {_words(program.argv)}"]
    return " && ".join(parts)


def _line(text: str) -> bytes:
    """One line, with the line breaks of its values in a variable."""
    if "\n" in text:
        # A substitution drops the breaks at its end, so something has to follow.
        broken = text.replace("\n", "'\"$onward_break\"'")
        text = f"onward_break=$(printf '\\nx') && onward_break=${{onward_break%x}} && {broken}"
    return _encoded(text) + b"\n"


def _encoded(text: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise HostRefused(
            "What is to be run holds half a character (a lone surrogate), which has no bytes."
        ) from None


def _words(argv: Iterable[str]) -> str:
    return " ".join(map(_quoted, argv))


def _quoted(text: str) -> str:
    if _is_plain(text):
        return text
    return "'" + text.replace("'", "'\\''") + "'"
