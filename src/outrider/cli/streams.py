"""The command's side of its surroundings: what stdout and stderr can take, colours, and the signals that end a program.

Decided here: JSON is UTF-8 whatever the terminal speaks, a character that the terminal cannot show is written as an escape, NO_COLOR and
a terminal that knows no colours are honoured, an output that cannot be written is an error like any other, and being told to end is
treated as Ctrl-C is, so that no server stays behind. Not here: what is shown.
"""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
from types import FrameType
from typing import Any, Final

import click

__all__ = ["EndingSignals", "give_up_stdout", "prepare_streams", "wants_colour", "write_json"]

_ENDING: Final = ("SIGTERM", "SIGHUP")
"""What a supervisor, `timeout` and a closed terminal send; Windows has the first only."""


def write_json(value: Any) -> None:
    """One JSON value on stdout, in UTF-8, as JSON always is."""
    import msgspec

    click.echo(msgspec.json.format(msgspec.json.encode(value)))


def prepare_streams() -> None:
    """Let no text fail for want of a character: what the terminal's encoding lacks becomes an escape."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")


def wants_colour() -> bool | None:
    """False if the user or the terminal wants none, None for what click finds out itself. See https://no-color.org."""
    return False if os.environ.get("NO_COLOR") or os.environ.get("TERM") in ("dumb", "unknown") else None


def give_up_stdout() -> None:
    """From now on nothing is written to stdout, so that what could not be written is not tried again at the end of the program."""
    try:
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, sys.stdout.fileno())
        os.close(nothing)
    except (OSError, ValueError, AttributeError):
        pass


class EndingSignals:
    """While open, SIGTERM and SIGHUP do what Ctrl-C does: the servers are ended first.

    Attributes:
        received: the number of the signal that came, or 0.
    """

    def __init__(self) -> None:
        self.received = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> EndingSignals:
        if threading.current_thread() is threading.main_thread():
            for name in _ENDING:
                number = getattr(signal, name, None)
                # One that is ignored stays so: `nohup` means it.
                if number is not None and signal.getsignal(number) is signal.SIG_DFL:
                    self._before[number] = signal.signal(number, self._end)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            if signal.getsignal(number) == self._end:
                signal.signal(number, handler)

    def _end(self, number: int, frame: FrameType | None) -> None:
        if self.received:
            return  # `timeout` sends it twice, and the end is under way; whoever cannot wait has SIGKILL
        self.received = number
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in the background of a shell
            raise KeyboardInterrupt
        signal.raise_signal(signal.SIGINT)
