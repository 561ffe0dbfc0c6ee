"""Which era a server behind a command speaks: everything that was ever answered to `server/discover` over a pipe."""

from __future__ import annotations

from typing import Any

import pytest

import outrider
from cases.expectations import assert_found, look_at, options, steps
from fakes.running import Fake, FakeStdio
from fakes.scripts import (
    NOTHING,
    Action,
    Script,
    defer,
    discover_result,
    error,
    exit_with,
    gate,
    initialize_result,
    legacy,
    modern,
    on,
    result,
    run,
    stderr,
)
from outrider import Client, Era
from outrider.client.target import parse_target

HANDSHAKE_AFTER_PROBE = ["server/discover", "initialize", "notifications/initialized", "tools/list"]


def first_method_of_each_process(fake: Fake) -> list[str]:
    first: dict[int, str] = {}
    for record in fake.received():
        first.setdefault(record["pid"], record["message"]["method"])
    return list(first.values())


class TestRefusedProbes:
    @pytest.mark.parametrize("code", [-32602, -32600, -32601, -32603, -32700, -32000, -32002, -1, 0, 7])
    async def test_any_other_error_means_legacy(self, fake_stdio: FakeStdio, code: int) -> None:
        """Case 1: the rule is not tied to one code; the handshake follows on the same process."""
        fake = fake_stdio(Script(on("server/discover", error(code, "Invalid request parameters", data="")), *legacy()))
        assert_found(await look_at(fake.command), "legacy")
        assert fake.methods() == HANDSHAKE_AFTER_PROBE
        assert fake.spawns == 1

    @pytest.mark.parametrize("data", [{}, {"data": None}, {"data": ""}, {"data": {"why": ["x"]}}, {"data": 3}])
    async def test_whatever_the_error_data_is(self, fake_stdio: FakeStdio, data: dict[str, Any]) -> None:
        """Case 1: `data` absent, null, empty or an object."""
        fake = fake_stdio(Script(on("server/discover", error(-32602, "Invalid request parameters", **data)), *legacy()))
        assert_found(await look_at(fake.command), "legacy")

    async def test_a_flood_on_stderr_blocks_nobody(self, fake_stdio: FakeStdio) -> None:
        """Case 37: stderr is drained from the start; it is no error by itself, and its last lines are kept."""
        flood = stderr("validation error of a request nobody understands\n", 1_500)
        fake = fake_stdio(
            Script(
                on("server/discover", flood, error(-32602, "Invalid request parameters")),
                on("initialize", flood, stderr("the last words\n"), *legacy()[0].do),
                *legacy(),
                start=[flood],
            )
        )
        report = await look_at(fake.command)
        assert_found(report, "legacy")
        assert report.stderr_tail[-1] == "the last words"
        assert sum(map(len, report.stderr_tail)) < 100_000
        assert fake.spawns == 1

    async def test_a_server_that_serves_before_any_handshake(self, fake_stdio: FakeStdio) -> None:
        """Case 99: it answers everything in the shape of 2025 and knows no `server/discover`; the probe decides, and the
        handshake is made nevertheless.
        """
        fake = fake_stdio(
            Script(on("tools/list", result({"tools": [{"name": "old", "inputSchema": {"type": "object"}}]})), *legacy())
        )
        assert_found(await look_at(fake.command), "legacy", "old")
        assert fake.methods() == HANDSHAKE_AFTER_PROBE

    async def test_the_handshake_is_completed_before_anything_is_asked(self, fake_stdio: FakeStdio) -> None:
        """Case 12: a server that holds all answers back until `notifications/initialized`."""
        probe_refused = on("server/discover", error(-32601, "Method not found"))
        fake = fake_stdio(Script(probe_refused, *legacy(), on(None, NOTHING)))
        assert_found(await look_at(fake.command), "legacy")
        assert fake.methods() == HANDSHAKE_AFTER_PROBE
        initialized = fake.messages("notifications/initialized")
        assert initialized == [{"jsonrpc": "2.0", "method": "notifications/initialized"}]


class TestExitOnTheProbe:
    DYING = (stderr("Error: expect initialize request\n"), exit_with(1))

    async def test_a_fresh_process_is_asked_to_initialize_first(self, fake_stdio: FakeStdio) -> None:
        """Case 2: end of output before an answer is one more way of not being modern."""
        fake = fake_stdio(Script(on("server/discover", *self.DYING), *legacy()))
        report = await look_at(fake.command)
        assert_found(report, "legacy")
        assert fake.spawns == 2
        assert first_method_of_each_process(fake) == ["server/discover", "initialize"]
        assert steps(report) == ["server/discover", "initialize"]

    @pytest.mark.parametrize("code", [0, 1, 255])
    async def test_whatever_its_exit_code(self, fake_stdio: FakeStdio, code: int) -> None:
        """Case 2."""
        fake = fake_stdio(Script(on("server/discover", exit_with(code)), *legacy()))
        assert_found(await look_at(fake.command), "legacy")
        assert fake.spawns == 2

    async def test_both_attempts_and_the_last_words_are_reported(self, fake_stdio: FakeStdio) -> None:
        """Case 2: when the fresh process fails too; there is no third."""
        fake = fake_stdio(Script(on(None, *self.DYING)))
        report = await look_at(fake.command)
        assert report.failure is not None
        assert (report.failure.kind, report.failure.exit_code) == ("ended", 1)
        assert report.stderr_tail == ("Error: expect initialize request",)
        assert steps(report) == ["server/discover", "initialize"]
        assert fake.spawns == 2

    async def test_it_was_still_starting_when_the_handshake_was_offered(self, fake_stdio: FakeStdio) -> None:
        """Case 2, case 33: an installer took longer than the probe's window; when the server reads the probe at last, it exits."""
        fake = fake_stdio(Script(on("server/discover", *self.DYING), *legacy(), start=[gate("installed")]))

        def trace(direction: str, line: str) -> None:
            if direction == ">" and '"initialize"' in line:
                fake.open_gate("installed")

        assert_found(await look_at(fake.command, probe_timeout_s=0.3, trace=trace), "legacy")
        assert first_method_of_each_process(fake) == ["server/discover", "initialize"]

    async def test_a_modern_server_that_died_once(self, fake_stdio: FakeStdio) -> None:
        """Case 2, case 40: its first start failed for a reason of its own; the fresh process refuses `initialize` and is probed."""
        fake = fake_stdio(Script(on(None, exit_with(1), spawn=1), *modern()))
        assert_found(await look_at(fake.command), "modern")
        assert fake.spawns == 2


class TestLateAnswers:
    LATE = (on("server/discover", defer("late", result(discover_result()))),)

    async def test_a_cold_start_that_answers_both(self, fake_stdio: FakeStdio) -> None:
        """Case 9: the probe's answer comes after `initialize` was sent, and before that is refused as modern servers do."""
        refused = error(-32022, "no", data={"supported": ["2026-07-28"], "requested": "2025-11-25"})
        fake = fake_stdio(Script(*self.LATE, on("initialize", run("late"), refused), *modern()))
        report = await look_at(fake.command, probe_timeout_s=0.3)
        assert_found(report, "modern")
        assert fake.methods() == ["server/discover", "initialize", "tools/list"]
        assert fake.spawns == 1

    async def test_the_refusal_comes_first(self, fake_stdio: FakeStdio) -> None:
        """Case 9: -32022 in reply to `initialize` is as good a proof; the probe may be repeated."""
        refused = error(-32022, "no", data={"supported": ["2026-07-28"], "requested": "2025-11-25"})
        fake = fake_stdio(
            Script(
                on("server/discover", defer("late", result(discover_result())), times=1),
                on("initialize", refused, run("late")),
                *modern(),
            )
        )
        assert_found(await look_at(fake.command, probe_timeout_s=0.3), "modern")
        assert fake.spawns == 1

    async def test_only_the_probe_is_answered_late(self, fake_stdio: FakeStdio) -> None:
        """Case 9: a modern server that ignores `initialize` altogether."""
        fake = fake_stdio(Script(*self.LATE, on("initialize", run("late")), *modern()))
        assert_found(await look_at(fake.command, probe_timeout_s=0.3), "modern")

    @pytest.mark.parametrize("late", [error(-32601, "Method not found"), error(-32602, "Invalid", data="")])
    async def test_a_late_refusal_changes_nothing(self, fake_stdio: FakeStdio, late: Action) -> None:
        """Case 145: it belongs to a request that nobody waits for, and no id is ever used twice on one stream."""
        listing = legacy()[2].do
        fake = fake_stdio(
            Script(on("server/discover", defer("late", late)), on("tools/list", run("late"), *listing), *legacy())
        )
        report = await look_at(fake.command, probe_timeout_s=0.3)
        assert_found(report, "legacy")
        ids = [message["id"] for message in fake.messages() if "id" in message]
        assert len(set(ids)) == len(ids) == 3
        assert not any("unknown id" in warning for warning in report.warnings)

    async def test_a_late_description_after_the_handshake_is_dropped(self, fake_stdio: FakeStdio) -> None:
        """Case 145: the legacy session works by then; nothing is gained by changing horses."""
        listing = legacy()[2].do
        fake = fake_stdio(Script(*self.LATE, on("tools/list", run("late"), *listing), *legacy()))
        assert_found(await look_at(fake.command, probe_timeout_s=0.3), "legacy")


class TestVersions:
    async def test_a_description_with_legacy_versions_only(self, fake_stdio: FakeStdio) -> None:
        """Case 10: the era comes from the version that is chosen, not from the method being known."""
        described = on("server/discover", result(discover_result(["2025-06-18", "2025-03-26", "1999-01-01"])))
        fake = fake_stdio(Script(described, *legacy()))
        report = await look_at(fake.command)
        assert_found(report, "legacy")
        assert report.protocol_version == "2025-06-18"
        assert [message["params"]["protocolVersion"] for message in fake.messages("initialize")] == ["2025-06-18"]

    async def test_a_newer_version_beside_ours(self, fake_stdio: FakeStdio) -> None:
        """Case 155: the best common entry of a table counts, not the newest date."""
        fake = fake_stdio(Script(*modern(versions=["2027-03-01", "2026-07-28"])))
        report = await look_at(fake.command)
        assert_found(report, "modern")
        assert report.protocol_version == "2026-07-28"
        assert report.supported_versions == ("2027-03-01", "2026-07-28")

    @pytest.mark.parametrize(
        "answer",
        [
            result(discover_result(["2027-03-01"])),
            error(-32022, "no", data={"supported": ["2027-03-01"], "requested": "2026-07-28"}),
        ],
        ids=["described", "refused"],
    )
    async def test_only_versions_of_the_future(self, fake_stdio: FakeStdio, answer: Action) -> None:
        """Case 155: both lists are named, and `initialize` is not tried."""
        fake = fake_stdio(Script(on("server/discover", answer), *legacy()))
        report = await look_at(fake.command)
        assert report.failure is not None
        assert report.failure.kind == "version"
        assert "2027-03-01" in report.failure.message
        assert "2026-07-28" in report.failure.message
        assert fake.methods() == ["server/discover"]

    async def test_refused_with_a_list_that_holds_ours(self, fake_stdio: FakeStdio) -> None:
        """Case 155: a server that refuses the very version it lists is asked no more than the table says."""
        data = {"supported": ["2027-03-01", "2026-07-28"], "requested": "2026-07-28"}
        fake = fake_stdio(Script(on("server/discover", error(-32022, "no", data=data)), *legacy()))
        report = await look_at(fake.command)
        assert report.failure is not None
        assert "initialize" not in fake.methods()

    @pytest.mark.parametrize("pin", ["modern", "legacy"])
    async def test_a_pinned_era_is_kept(self, fake_stdio: FakeStdio, pin: str) -> None:
        """Ours: what the user pinned is not second-guessed; the other era is never spoken."""
        fake = fake_stdio(Script(*(legacy() if pin == "modern" else modern())))
        report = await look_at(fake.command, pin=outrider.Pin(pin))
        assert report.failure is not None
        assert ("initialize" if pin == "modern" else "server/discover") not in fake.methods()
        good = fake_stdio(Script(*(modern() if pin == "modern" else legacy())))
        assert_found(await look_at(good.command, pin=outrider.Pin(pin)), pin)
        assert ("initialize" in good.methods()) == (pin == "legacy")

    async def test_a_missing_capability_is_named(self, fake_stdio: FakeStdio) -> None:
        """Table: -32021 is modern, and reported; what the server wants stands in the hint."""
        refusal = error(-32021, "no", data={"requiredCapabilities": {"sampling": {}}})
        report = await look_at(fake_stdio(Script(on("server/discover", refusal), *legacy())).command)
        assert report.failure is not None
        assert "the capability sampling" in report.failure.hint

    async def test_a_handshake_that_chooses_a_version_without_handshakes(self, fake_stdio: FakeStdio) -> None:
        """Case 155: "no common version" about a version that both sides name needs a word more."""
        chosen = initialize_result("2026-07-28")
        report = await look_at(fake_stdio(Script(on("initialize", result(chosen)), *legacy())).command)
        assert report.failure is not None
        assert "after a handshake, which that version does not have" in report.failure.message

    async def test_a_handshake_that_chooses_an_older_version(self, fake_stdio: FakeStdio) -> None:
        """Spec 2025-11-25 lifecycle#version-negotiation: the server answers with the version it prefers."""
        fake = fake_stdio(Script(*legacy(version="2024-11-05")))
        report = await look_at(fake.command)
        assert_found(report, "legacy")
        assert report.protocol_version == "2024-11-05"

    @pytest.mark.parametrize("version", ["2023-01-01", "2026-07-28", ""])
    async def test_a_handshake_that_chooses_a_version_nobody_speaks(self, fake_stdio: FakeStdio, version: str) -> None:
        """Spec 2025-11-25 lifecycle#version-negotiation: a version that the client does not support ends it."""
        fake = fake_stdio(Script(*legacy(version=version)))
        report = await look_at(fake.command)
        assert report.failure is not None
        assert report.failure.kind == "version"


class TestSilence:
    async def test_the_handshake_follows_on_the_same_process(self, fake_stdio: FakeStdio) -> None:
        """Case 11: a bounded wait, then `initialize`."""
        fake = fake_stdio(Script(on("server/discover", NOTHING), *legacy()))
        report = await look_at(fake.command, probe_timeout_s=0.3)
        assert_found(report, "legacy")
        assert fake.methods() == HANDSHAKE_AFTER_PROBE
        assert fake.spawns == 1

    async def test_a_process_that_the_probe_has_confused(self, fake_stdio: FakeStdio) -> None:
        """Case 11: it answers `initialize` neither; a fresh one that is asked nothing else first does."""
        fake = fake_stdio(Script(on(None, NOTHING, spawn=1), *legacy()))
        assert_found(await look_at(fake.command, probe_timeout_s=0.2, start_timeout_s=6.0), "legacy")
        assert first_method_of_each_process(fake) == ["server/discover", "initialize"]
        assert fake.spawns == 2

    async def test_a_server_that_refuses_the_probe_and_then_says_nothing(self, fake_stdio: FakeStdio) -> None:
        """Case 11: what failed is the handshake that was never answered, not the probe that was refused."""
        fake = fake_stdio(Script(on("server/discover", error(-32601, "Method not found")), on(None, NOTHING)))
        report = await look_at(fake.command, start_timeout_s=2.0)
        assert report.failure is not None
        assert report.failure.kind == "timeout"
        assert "-32601" not in report.failure.message

    async def test_a_server_that_never_says_anything(self, fake_stdio: FakeStdio) -> None:
        """Case 11: the time allowed for the start holds, and nothing is left behind."""
        fake = fake_stdio(Script(on(None, NOTHING)))
        report = await look_at(fake.command, probe_timeout_s=0.2, start_timeout_s=2.0)
        assert report.failure is not None
        assert report.failure.kind == "timeout"
        assert fake.spawns <= 2
        fake.assert_nothing_runs()


class TestStaleVerdicts:
    async def test_legacy_was_remembered_and_the_server_is_modern_now(self, fake_stdio: FakeStdio) -> None:
        """Case 39: the same command, upgraded."""
        fake = fake_stdio(Script(*modern()))
        async with Client(parse_target(fake.command), options(), assume=Era.LEGACY) as client:
            assert client.era is Era.MODERN
        assert fake.methods() == ["initialize", "server/discover"]
        assert fake.spawns == 1

    async def test_legacy_was_remembered_and_still_holds(self, fake_stdio: FakeStdio) -> None:
        """Case 11: a silent server's second contact costs no wait, because no probe is sent."""
        fake = fake_stdio(Script(on("server/discover", NOTHING), *legacy()))
        async with Client(parse_target(fake.command), options(), assume=Era.LEGACY) as client:
            assert client.era is Era.LEGACY
        assert fake.methods() == ["initialize", "notifications/initialized"]
