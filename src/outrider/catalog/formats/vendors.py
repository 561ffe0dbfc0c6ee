"""What each model vendor accepts: names, JSON Schema subset, limits. Facts only, one table.

Decided here: which vendors are known, and the rules their documentation, SDK types and error messages state. Not here: how a schema
is brought under those rules (`adaptation`), and the shapes of calls and results (`calls`, `results`). Pure.

Every fact is named with its source in docs/models.md. Spec: ours
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from msgspec import Struct

__all__ = ["RULES", "SchemaRules", "Vendor", "VendorRules"]


class Vendor(StrEnum):
    """A vendor's API, by the name that users give it. Every OpenAI-compatible endpoint is `OPENAI`."""

    OPENAI = "openai"
    OPENAI_RESPONSES = "openai-responses"
    ANTHROPIC = "anthropic"
    GEMINI = "gemini"
    MISTRAL = "mistral"


class SchemaRules(Struct, frozen=True):
    """Which schemas a vendor takes for a tool's parameters.

    Attributes:
        keywords: the keywords that may occur, or None for all of JSON Schema 2020-12 and keywords we do not know.
        root_refuses: keywords that may not occur at the root, where `type` is always "object".
        is_strict: every object is closed (`additionalProperties: false`).
        requires_all: every declared property is required; optional ones are sent as a union with null.
        needs_type: a schema without `type`, `anyOf`, `enum`, `const` or `$ref` is refused.
        splits_types: a list of types is refused; it becomes `anyOf`.
        ref_stands_alone: `$ref` takes no siblings.
        recursion: "any", "optional" (only through a property that is not required), or "none".
        formats: values of `format` that may occur, or None for any.
        enum_types: JSON types of values in `enum`, or None for any.
        max_min_items: the largest `minItems`, or None.
        simple_patterns: `pattern` without look-around, back-references and word boundaries.
        property_key: regular expression that property names match, or None.
        only_root_keys: whether `property_key` holds for the parameters themselves but not for properties inside them.
        max_depth, max_properties, max_enum_values, max_name_chars: size of one schema (objects inside objects; all properties; all
            enum values; characters of property names, definition names, enum and const values together), or None.
    """

    keywords: frozenset[str] | None = None
    root_refuses: frozenset[str] = frozenset()
    is_strict: bool = False
    requires_all: bool = False
    needs_type: bool = False
    splits_types: bool = False
    ref_stands_alone: bool = False
    recursion: str = "any"
    formats: frozenset[str] | None = None
    enum_types: frozenset[str] | None = None
    max_min_items: int | None = None
    simple_patterns: bool = False
    property_key: str | None = None
    only_root_keys: bool = False
    max_depth: int | None = None
    max_properties: int | None = None
    max_enum_values: int | None = None
    max_name_chars: int | None = None


class VendorRules(Struct, frozen=True):
    """What one vendor's API accepts.

    Attributes:
        label: the API's name for people.
        name: regular expression that a tool's name matches, anchored by its user.
        max_tools: tools in one request, or None where no limit is known.
        max_description_chars: characters of a tool's description.
        loose: the schemas it takes for an ordinary tool.
        strict: the schemas it takes for a tool marked strict, or None where there is no such mark.
        is_strict_by_default: whether tools are marked strict if nothing is said and their schema allows it.
        max_strict_tools, max_strict_optional, max_strict_unions: per request: tools marked strict, their optional parameters,
            and their parameters with a union type; None where no limit is known.
    """

    label: str
    name: str
    max_tools: int | None
    max_description_chars: int
    loose: SchemaRules
    strict: SchemaRules | None = None
    is_strict_by_default: bool = False
    max_strict_tools: int | None = None
    max_strict_optional: int | None = None
    max_strict_unions: int | None = None


# Where a vendor states no limit, ours: a server's text is not trusted with the whole context.
_DESCRIPTION_CHARS: Final = 8_192
_COMPOSITION: Final = frozenset({"allOf", "anyOf", "oneOf"})
_PLAIN: Final = frozenset(
    {"$defs", "$ref", "additionalProperties", "anyOf", "const", "description", "enum", "format", "items", "properties"}
    | {"required", "title", "type"}
)
_STRING_FORMATS: Final = frozenset(
    {"date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uuid"}
)

_OPENAI: Final = SchemaRules(root_refuses=_COMPOSITION | {"const", "enum", "not"})
_OPENAI_STRICT: Final = SchemaRules(
    keywords=_PLAIN
    | {"exclusiveMaximum", "exclusiveMinimum", "maxItems", "maximum", "minItems", "minimum", "multipleOf", "pattern"},
    root_refuses=_OPENAI.root_refuses,
    is_strict=True,
    requires_all=True,
    needs_type=True,
    ref_stands_alone=True,
    formats=_STRING_FORMATS,
    max_depth=10,
    max_properties=5_000,
    max_enum_values=1_000,
    max_name_chars=120_000,
)
_ANTHROPIC: Final = SchemaRules(root_refuses=_COMPOSITION, property_key=r"[a-zA-Z0-9_.-]{1,64}", only_root_keys=True)

RULES: Final[dict[Vendor, VendorRules]] = {
    Vendor.OPENAI: VendorRules(
        label="OpenAI Chat Completions",
        name=r"[a-zA-Z0-9_-]{1,64}",
        max_tools=128,
        # Some models and Azure refuse more.
        max_description_chars=1_024,
        loose=_OPENAI,
        strict=_OPENAI_STRICT,
        is_strict_by_default=True,
    ),
    Vendor.OPENAI_RESPONSES: VendorRules(
        label="OpenAI Responses",
        name=r"[a-zA-Z0-9_-]{1,64}",
        max_tools=128,
        max_description_chars=1_024,
        loose=_OPENAI,
        strict=_OPENAI_STRICT,
        is_strict_by_default=True,
    ),
    Vendor.ANTHROPIC: VendorRules(
        label="Anthropic Messages",
        name=r"[a-zA-Z0-9_-]{1,64}",
        max_tools=None,
        max_description_chars=_DESCRIPTION_CHARS,
        loose=_ANTHROPIC,
        strict=SchemaRules(
            keywords=_PLAIN | {"default", "minItems", "pattern"},
            root_refuses=_COMPOSITION,
            is_strict=True,
            needs_type=True,
            ref_stands_alone=True,
            recursion="none",
            formats=_STRING_FORMATS | {"uri"},
            enum_types=frozenset({"string", "number", "boolean", "null"}),
            max_min_items=1,
            simple_patterns=True,
            property_key=_ANTHROPIC.property_key,
            only_root_keys=True,
        ),
        # All strict tools of a request become one grammar, and past an unstated size the whole request is refused.
        is_strict_by_default=False,
        max_strict_tools=20,
        max_strict_optional=24,
        max_strict_unions=16,
    ),
    Vendor.GEMINI: VendorRules(
        label="Gemini",
        name=r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}",
        max_tools=512,
        max_description_chars=_DESCRIPTION_CHARS,
        loose=SchemaRules(
            keywords=(_PLAIN - {"const"}) | {"maxItems", "maximum", "minItems", "minimum", "prefixItems"},
            # Nothing says so of the root; but every example is a plain object, and no other vendor takes more.
            root_refuses=_COMPOSITION,
            splits_types=True,
            ref_stands_alone=True,
            recursion="optional",
            formats=frozenset({"date", "date-time", "time"}),
            enum_types=frozenset({"string", "number"}),
            property_key=r"[a-zA-Z_][a-zA-Z0-9_]{0,63}",
        ),
    ),
    Vendor.MISTRAL: VendorRules(
        label="Mistral",
        name=r"[a-zA-Z0-9_-]{1,64}",
        max_tools=None,
        max_description_chars=_DESCRIPTION_CHARS,
        # No subset is stated for this vendor; the root is kept as plain as the others want it.
        loose=SchemaRules(root_refuses=_COMPOSITION),
        strict=SchemaRules(root_refuses=_COMPOSITION, is_strict=True),
        is_strict_by_default=False,
    ),
}
"""What each vendor accepts."""
