"""Tool definitions as a vendor's API takes them.

Decided here: the shape of a definition, which tools are left out and why, which are marked strict. Not here: which tools a model should
see at all (exposure), and the schema rules (`vendors`, `adaptation`). Pure: no SDK is needed, no file is read.

Spec: ours
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from outrider.catalog.formats.account import NotStrict
from outrider.catalog.formats.adaptation import Adapted, adapt
from outrider.catalog.formats.clean import Change, CleanSchema, Effect
from outrider.catalog.formats.naming import Aliases, ToolRef, UnknownTool, shown_name
from outrider.catalog.formats.reading import read_schema
from outrider.catalog.formats.tokens import TokenCount, count_tokens
from outrider.catalog.formats.vendors import RULES, Vendor, VendorRules
from outrider.errors import LimitExceeded
from outrider.protocol.model import Tool
from outrider.protocol.schema_findings import Verdict, check_input_schema

__all__ = ["LeftOut", "Offered", "OfferedTool", "offer"]

_MAX_BYTES: Final = 262_144


class OfferedTool(Struct, frozen=True):
    """One tool that the model is told of.

    Attributes:
        ref: which tool.
        name: its name for the model.
        input_schema: the schema of its arguments as its server sent it.
        parameter_aliases: the server's names of parameters, by those the model sees instead.
        is_strict: whether the vendor holds the model to the schema.
        not_strict: why it is not strict although that was wanted, or "".
        changes: everything that differs from the server's definition.
    """

    ref: ToolRef
    name: str
    input_schema: dict[str, Any]
    parameter_aliases: dict[str, str]
    is_strict: bool
    not_strict: str
    changes: tuple[Change, ...]

    @property
    def losses(self) -> tuple[Change, ...]:
        """The changes that alter the meaning."""
        return tuple(change for change in self.changes if change.is_loss)


class LeftOut(Struct, frozen=True):
    """A tool that the model is not told of, and why, for people."""

    ref: ToolRef
    reason: str

    def __str__(self) -> str:
        return f"{self.ref} is left out: {self.reason}"


class Offered(Struct, frozen=True):
    """Tools in a vendor's form, and all that is needed to understand the calls that come back.

    Attributes:
        vendor: whose form.
        tools: exactly what to send as `tools`. The same tools in the same order are the same bytes.
        entries: what is behind each definition, in the same order.
        left_out: the tools that are not among them.
        aliases: shown names to tools.
    """

    vendor: Vendor
    tools: list[dict[str, Any]]
    entries: dict[ToolRef, OfferedTool]
    left_out: tuple[LeftOut, ...]
    aliases: Aliases

    @property
    def losses(self) -> dict[ToolRef, tuple[Change, ...]]:
        """What each tool lost, for those that lost anything."""
        return {ref: entry.losses for ref, entry in self.entries.items() if entry.losses}

    @property
    def tokens(self) -> TokenCount:
        """What the definitions cost in each request."""
        return count_tokens(self.tools, self.vendor) if self.tools else TokenCount(0, "estimate")

    def resolve(self, name: str) -> ToolRef | UnknownTool:
        """The tool that `name` in a call means."""
        return self.aliases.resolve(name)


def offer(
    vendor: Vendor | str,
    tools: Iterable[tuple[ToolRef, Tool | Mapping[str, Any]]],
    *,
    strict: Literal["auto"] | bool = "auto",
    max_description_chars: int | None = None,
) -> Offered:
    """`tools` as `vendor` takes them, in the order given.

    A tool that cannot be offered is left out with a reason; the others stay. A tool given twice is offered once.

    Args:
        vendor: a `Vendor`, or its value such as "openai".
        tools: each tool's key and its definition, as read from a server or as the wire's dict.
        strict: "auto" marks a tool strict if its schema allows that without another meaning and the vendor copes with any number of
            strict tools; True also for other vendors with such a mark, as far as their limits go; False for none.
        max_description_chars: characters of a tool's description, instead of the vendor's limit.

    Raises:
        ValueError: no such vendor.
    """
    vendor = Vendor(vendor)
    rules = RULES[vendor]
    wants_strict = rules.strict is not None and (rules.is_strict_by_default if strict == "auto" else strict)
    given: dict[ToolRef, dict[str, Any]] = {}
    left_out: list[LeftOut] = []
    for ref, tool in tools:
        if ref in given:
            continue
        try:
            given[ref] = tool.decoded() if isinstance(tool, Tool) else dict(tool)
        except (msgspec.DecodeError, RecursionError) as error:
            left_out.append(LeftOut(ref, f"its definition cannot be read: {str(error)[:100]}"))
    aliases = Aliases(given)
    left_out.extend(LeftOut(ref, "its name for the model is that of another tool too") for ref in aliases.refused)
    entries: dict[ToolRef, OfferedTool] = {}
    definitions: list[dict[str, Any]] = []
    budget = _StrictBudget(rules)
    for ref, wire in given.items():
        if ref in aliases.refused:
            continue
        if rules.max_tools is not None and len(entries) >= rules.max_tools:
            left_out.append(LeftOut(ref, f"{rules.label} takes at most {rules.max_tools} tools in a request"))
            continue
        made = _define(vendor, rules, ref, wire, budget if wants_strict else None, max_description_chars)
        if isinstance(made, LeftOut):
            left_out.append(made)
        else:
            entries[ref], definition = made
            definitions.append(definition)
    if vendor is Vendor.GEMINI and definitions:
        definitions = [{"functionDeclarations": definitions}]
    return Offered(vendor, definitions, entries, tuple(left_out), Aliases(entries))


class _StrictBudget:
    """How many strict tools, optional parameters and unions a request may still have."""

    def __init__(self, rules: VendorRules) -> None:
        self._left = [rules.max_strict_tools, rules.max_strict_optional, rules.max_strict_unions]

    def refuses(self, adapted: Adapted) -> str:
        """Why the tool can no longer be strict, or ""; takes its share if it can."""
        costs = (1, adapted.optional, adapted.unions)
        names = ("strict tools", "optional parameters in strict tools", "parameters with alternatives in strict tools")
        for left, cost, name in zip(self._left, costs, names, strict=True):
            if left is not None and cost > left:
                return f"a request may have no more {name}"
        self._left = [left if left is None else left - cost for left, cost in zip(self._left, costs, strict=True)]
        return ""


def _define(
    vendor: Vendor,
    rules: VendorRules,
    ref: ToolRef,
    wire: dict[str, Any],
    budget: _StrictBudget | None,
    max_description_chars: int | None,
) -> tuple[OfferedTool, dict[str, Any]] | LeftOut:
    schema = wire.get("inputSchema")
    if not isinstance(schema, dict):
        return LeftOut(ref, "its inputSchema is not an object")
    try:
        clean = read_schema(schema)
        defect = _unusable(clean)
        if defect:
            return LeftOut(ref, defect)
        adapted, is_strict, not_strict = _adapted(clean, rules, budget)
        description, changes = _description(ref, wire, max_description_chars or rules.max_description_chars)
        if vendor is Vendor.GEMINI and _takes_nothing(adapted.schema):
            changes.append(Change(("inputSchema",), "", Effect.SAME, "a function without parameters has no schema"))
            if remark := adapted.schema.get("description"):
                description = f"{description}\n{remark}"
        name = shown_name(ref)
        if name != wire.get("name", ref.name):
            changes.append(Change(("name",), "", Effect.SAME, f"is shown as {name}"))
        definition = _definition(vendor, name, description, adapted.schema, is_strict)
        size = len(msgspec.json.encode(definition))
    except LimitExceeded as error:
        return LeftOut(ref, f"its inputSchema {error}")
    except UnicodeEncodeError:
        return LeftOut(ref, "its definition has text that is not Unicode")
    except RecursionError:
        return LeftOut(ref, "its inputSchema is nested too deeply")
    if size > _MAX_BYTES:
        return LeftOut(ref, f"its definition takes {size} bytes; at most {_MAX_BYTES} are sent")
    changes.extend(
        Change((key,), "", Effect.LOOSER, f"has no place in a tool of {rules.label}")
        for key in wire
        if key not in ("name", "description", "inputSchema", "title") and wire[key] is not None
    )
    changes.extend(adapted.changes)
    entry = OfferedTool(ref, name, schema, adapted.aliases, is_strict, not_strict, tuple(changes))
    return entry, definition


def _unusable(clean: CleanSchema) -> str:
    root = dict(clean.root)
    if clean.definitions:
        root["$defs"] = clean.definitions
    finding = check_input_schema(root)
    if finding is None or finding.verdict is not Verdict.EXCLUDE:
        return ""
    return f"its inputSchema {finding.where} {finding.message}"


def _adapted(clean: CleanSchema, rules: VendorRules, budget: _StrictBudget | None) -> tuple[Adapted, bool, str]:
    why = ""
    if budget is not None and rules.strict is not None:
        try:
            adapted = adapt(clean, rules.strict, must_keep_meaning=True)
            why = budget.refuses(adapted)
            if not why:
                return adapted, True, ""
        except NotStrict as reason:
            why = str(reason)
    return adapt(clean, rules.loose), False, why


def _description(ref: ToolRef, wire: dict[str, Any], max_chars: int) -> tuple[str, list[Change]]:
    changes: list[Change] = []
    text, title = (wire.get(key) if isinstance(wire.get(key), str) else "" for key in ("description", "title"))
    assert isinstance(text, str)
    assert isinstance(title, str)
    if not text.strip():
        changes.append(Change(("description",), "", Effect.SAME, "is missing; the title or the name stands there"))
        text = title.strip() or ref.name
    elif title and title not in text:
        changes.append(Change(("title",), "", Effect.LOOSER, "has no place beside the description"))
    if len(text) > max_chars:
        changes.append(Change(("description",), "", Effect.LOOSER, f"is cut to {max_chars} characters"))
        text = text[: max_chars - 1].rstrip() + "…"
    return text, changes


def _takes_nothing(schema: dict[str, Any]) -> bool:
    return not schema["properties"] and not schema.get("additionalProperties")


def _definition(vendor: Vendor, name: str, description: str, schema: dict[str, Any], is_strict: bool) -> dict[str, Any]:
    match vendor:
        case Vendor.ANTHROPIC:
            definition = {"name": name, "description": description, "input_schema": schema}
            return {**definition, "strict": True} if is_strict else definition
        case Vendor.GEMINI:
            declaration: dict[str, Any] = {"name": name, "description": description}
            # An object without properties is refused; a function without parameters has none at all.
            if not _takes_nothing(schema):
                declaration["parametersJsonSchema"] = schema
            return declaration
        case Vendor.OPENAI_RESPONSES:
            # Without the mark this API takes a tool for strict.
            function = {"name": name, "description": description, "parameters": schema, "strict": is_strict}
            return {"type": "function", **function}
        case _:
            function = {"name": name, "description": description, "parameters": schema}
            return {"type": "function", "function": {**function, "strict": True} if is_strict else function}
