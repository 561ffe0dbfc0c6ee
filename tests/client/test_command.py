"""What a server inherits, and how a batch file is called: pure functions, for every operating system on every operating system."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from outrider.client.command import batch_command_line, child_environment
from outrider.errors import ConnectFailed

OURS = {
    "PATH": "/bin",
    "HOME": "/home/u",
    "LC_CTYPE": "C",
    "XDG_RUNTIME_DIR": "/run/u",
    "no_proxy": "localhost",
    "HTTPS_PROXY": "http://proxy",
    "SSL_CERT_FILE": "/ca.pem",
    "OPENAI_API_KEY": "SECRET",
    "GITHUB_TOKEN": "SECRET",
    "SSH_AUTH_SOCK": "/agent",
    "home": "not HOME",
}


class TestEnvironment:
    def test_only_the_base_list_is_inherited(self) -> None:
        """Case 137: PATH, HOME, locale, temporary files, proxies, platform; no keys."""
        inherited = child_environment({}, ours=OURS, windows=False)
        assert inherited == {
            name: OURS[name]
            for name in ("PATH", "HOME", "LC_CTYPE", "XDG_RUNTIME_DIR", "no_proxy", "HTTPS_PROXY", "SSL_CERT_FILE")
        }

    def test_the_entrys_own_variables_win(self) -> None:
        """Case 137: plus the entry's own."""
        assert child_environment({"PATH": "/own", "KEY": "k"}, ours={"PATH": "/bin"}, windows=False) == {
            "PATH": "/own",
            "KEY": "k",
        }

    def test_everything_is_inherited_only_when_asked_for(self) -> None:
        """Case 137: an option to inherit all."""
        assert child_environment({"HOME": "/x"}, ours=OURS, inherit_all=True, windows=False) == {**OURS, "HOME": "/x"}

    def test_on_windows_names_are_compared_without_case(self) -> None:
        """Ours: `Path` and `PATH` are one variable there, and a second one would hide the first."""
        ours = {"Path": r"C:\Windows", "SystemRoot": r"C:\Windows", "ProgramFiles(x86)": r"C:\P", "Api_Key": "SECRET"}
        inherited = child_environment({"PATH": r"C:\own"}, ours=ours, windows=True)
        assert inherited == {"PATH": r"C:\own", "SystemRoot": r"C:\Windows", "ProgramFiles(x86)": r"C:\P"}


def what_cmd_passes_on(line: str) -> str:
    """What `cmd.exe /c` hands to a batch file as its arguments: quotes of the whole taken off, variables expanded.

    Fails where it would do anything else: expand a variable that is not empty, or see an operator outside quotes.
    """
    match = re.fullmatch(r'cmd\.exe /e:ON /v:OFF /d /c "(.*)"', line, re.I | re.S)
    assert match is not None
    text, out, position, quoted = match[1], "", 0, False
    while position < len(text):
        character = text[position]
        if character == "%":
            end = text.find("%", position + 1)
            name = text[position + 1 : end] if end >= 0 else ""
            if name:
                assert name == "cd:~,", f"%{name}% would be expanded"
                position = end + 1
                continue
        if character == '"':
            quoted = not quoted
        assert quoted or character not in "&|<>()^!\r\n", f"{character!r} would be an operator"
        assert character not in "\r\n"
        out += character
        position += 1
    return out


def what_a_program_reads(arguments: str) -> list[str]:
    """The arguments that the C runtime of Windows reads from a command line without the program's name."""
    found: list[str] = []
    position = 0
    while position < len(arguments):
        if arguments[position] in " \t":
            position += 1
            continue
        argument, quoted = "", False
        while position < len(arguments) and (quoted or arguments[position] not in " \t"):
            backslashes = 0
            while position < len(arguments) and arguments[position] == "\\":
                backslashes += 1
                position += 1
            if position < len(arguments) and arguments[position] == '"':
                argument += "\\" * (backslashes // 2)
                position += 1
                if backslashes % 2:
                    argument += '"'
                elif quoted and arguments[position : position + 1] == '"':
                    argument += '"'
                    position += 1
                else:
                    quoted = not quoted
                continue
            argument += "\\" * backslashes
            if position < len(arguments) and (quoted or arguments[position] not in " \t"):
                argument += arguments[position]
                position += 1
        found.append(argument)
    return found


class TestBatchFiles:
    ARGUMENTS = st.lists(st.text('ab \t"\\%&|<>^()!;,=$@-/:cd~é', max_size=8), max_size=4)

    @given(ARGUMENTS)
    @example(["-y", "@scope/server", "--path", "C:\\Program Files\\x\\"])
    @example(["%PATH%", "100%", "%%", "a%b%c"])
    @example(['say "hi" & calc.exe', '" & calc.exe & "', "x^&y", "", "\\", '\\"', "a\\\\ b\\\\"])
    def test_arguments_arrive_as_they_are(self, arguments: list[str]) -> None:
        """Ours: no argument can end the quotes, name a variable or start a command of its own."""
        program = r"C:\Program Files\nodejs\npx.cmd"
        passed_on = what_cmd_passes_on(batch_command_line(program, arguments))
        assert passed_on.startswith(f'"{program}"')
        assert what_a_program_reads(passed_on[len(program) + 2 :]) == arguments

    @pytest.mark.parametrize("argument", ["a\nb", "a\r", "\r\n"])
    def test_a_line_end_is_refused(self, argument: str) -> None:
        """Ours: the command interpreter ends the command there, whatever the quotes."""
        with pytest.raises(ConnectFailed) as failed:
            batch_command_line("x.cmd", ["ok", argument])
        assert argument not in str(failed.value)
