"""A process with one habit, named by its first argument: what stdio servers do to the client that started them.

It speaks lines, not JSON-RPC: these tests are about processes. Needs nothing but the standard library.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

IN, OUT, ERR = 0, 1, 2


def say(text: str, to: int = OUT) -> None:
    write(to, text.encode() + b"\n")


def write(to: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(to, view) :]


def read_to_end() -> bytes:
    received = b""
    while chunk := os.read(IN, 65_536):
        received += chunk
    return received


def wait_for_ever() -> None:
    while True:
        signal.pause()


def ignore_everything() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def echo() -> None:
    """Sends every line back."""
    while chunk := os.read(IN, 65_536):
        write(OUT, chunk)


def environment() -> None:
    """Tells its environment, working directory, session and process group."""
    say(json.dumps({"env": dict(os.environ), "cwd": os.getcwd(), "session": os.getsid(0), "group": os.getpgrp()}))
    read_to_end()


def output(line: str, times: str) -> None:
    """Writes a line so many times, then one more, then waits for the end of its input."""
    data = line.encode() + b"\n"
    for _ in range(int(times)):
        write(OUT, data)
    say("last")
    read_to_end()


def long_line(size: str, piece: str) -> None:
    """Writes one line of so many bytes in pieces of so many, then another line."""
    left = int(size)
    while left:
        write(OUT, b"x" * min(left, int(piece)))
        left -= min(left, int(piece))
    say("")
    say("last")
    read_to_end()


def until_blocked(line: str) -> None:
    """Writes lines until nobody has taken any for two seconds, tells on stderr after how many bytes, then writes one more line."""
    data, written = line.encode() + b"\n", 0
    os.set_blocking(OUT, False)
    view = memoryview(data)
    while select.select([], [OUT], [], 2.0)[1]:
        try:
            count = os.write(OUT, view)
        except BlockingIOError:
            continue
        written += count
        view = view[count:] or memoryview(data)
    say(f"blocked after {written}", ERR)
    os.set_blocking(OUT, True)
    write(OUT, bytes(view))
    say("last")
    read_to_end()


def errors(size: str) -> None:
    """Writes so many bytes to stderr in lines of a hundred before it says anything, then waits for the end of its input."""
    for _ in range(int(size) // 100):
        write(ERR, b"e" * 99 + b"\n")
    say("done")
    read_to_end()


def one_long_error(size: str) -> None:
    """Writes one line of so many bytes to stderr, then a short one."""
    write(ERR, b"e" * int(size) + b"\n")
    say("ready", ERR)
    say("done")
    read_to_end()


def deaf_until_told() -> None:
    """Does not read its input until it gets SIGUSR1; then tells the length and the ends of each line of it."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    say("deaf")
    signal.sigwait([signal.SIGUSR1])
    for line in sys.stdin.buffer:
        say(f"{len(line)} {line[:1].decode()} {line[-2:-1].decode()}")


def exit_with(code: str, *lines: str) -> None:
    """Says something on stderr and exits."""
    for line in lines:
        say(line, ERR)
    sys.exit(int(code))


def exit_after_answer() -> None:
    """Answers once, with more than a pipe holds, and exits at once."""
    os.read(IN, 65_536)
    for number in range(1000):
        say(f"{number:0200}")
    say("last words", ERR)
    os._exit(7)


def die() -> None:
    """Ends like a program with a bug in it."""
    os.kill(os.getpid(), signal.SIGSEGV)


def lock(path: str) -> None:
    """Holds a lock file that only a clean end removes."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        say("the lock is held", ERR)
        sys.exit(1)
    say("ready")
    read_to_end()
    Path(path).unlink()


def heed_term(path: str) -> None:
    """Ignores the end of its input; on SIGTERM it notes that it was asked, and exits."""

    def on_term(*_: object) -> None:
        Path(path).write_text("asked")
        sys.exit(0)

    signal.signal(signal.SIGTERM, on_term)
    say("ready")
    wait_for_ever()


def stubborn() -> None:
    """Ignores the end of its input and every signal it can ignore."""
    ignore_everything()
    say("ready")
    wait_for_ever()


def close_output() -> None:
    """Closes its output and lives on."""
    say("ready")
    os.close(OUT)
    wait_for_ever()


def start_another(then: str, *, new_session: bool = False) -> None:
    """Starts a stubborn process that holds all pipes, tells its id, and does what it was told to do then."""
    other = subprocess.Popen(
        [sys.executable, __file__, "stubborn-child"], start_new_session=new_session, close_fds=False, stdin=IN
    )
    # The child tells that it is deaf to signals, so that no test is faster than it.
    say(str(other.pid))
    if then == "exit":
        os.read(IN, 65_536)
        os._exit(0)
    if then == "wait":
        read_to_end()
    else:
        ignore_everything()
        wait_for_ever()


def stubborn_child() -> None:
    ignore_everything()
    say("deaf child")
    wait_for_ever()


HABITS: dict[str, Callable[..., None]] = {
    "echo": echo,
    "environment": environment,
    "output": output,
    "long-line": long_line,
    "until-blocked": until_blocked,
    "errors": errors,
    "one-long-error": one_long_error,
    "deaf-until-told": deaf_until_told,
    "exit": exit_with,
    "exit-after-answer": exit_after_answer,
    "die": die,
    "lock": lock,
    "heed-term": heed_term,
    "stubborn": stubborn,
    "close-output": close_output,
    "parent": start_another,
    "parent-of-session": lambda then: start_another(then, new_session=True),
    "stubborn-child": stubborn_child,
}

if __name__ == "__main__":
    HABITS[sys.argv[1]](*sys.argv[2:])
