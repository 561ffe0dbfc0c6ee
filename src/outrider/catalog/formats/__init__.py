"""Tools in the form that each model vendor takes, and the way back.

`offer` turns tool definitions into what is sent, with an account of every difference; `read_calls` finds the calls in an answer and what
they mean to the servers; `render_results` makes the messages that follow. OpenAI Chat Completions (and what is compatible with it),
OpenAI Responses, Anthropic, Gemini, Mistral. Pure, and without any vendor's SDK.

In modules: `vendors` the rules as a table; `naming` names of tools; `clean` a schema in clean form, `reading` how it comes to that,
`merging` two as one, `kinds` of values; `adaptation` a clean schema under a vendor's rules, with its steps `flattening`, `vocabulary`,
`aliases` and `closing`, and the `account` of them; `offering` definitions; `arguments` the way back of arguments; `calls`; `results`;
`tokens` what it costs.
"""

from __future__ import annotations

from outrider.catalog.formats.arguments import Malformed, read_arguments, restore_arguments
from outrider.catalog.formats.calls import ModelCall, read_calls
from outrider.catalog.formats.clean import Change, Effect
from outrider.catalog.formats.naming import Aliases, ToolRef, UnknownTool, shown_name
from outrider.catalog.formats.offering import LeftOut, Offered, OfferedTool, offer
from outrider.catalog.formats.results import CallFailed, Page, ResultOptions, page_text, render_results, result_text
from outrider.catalog.formats.tokens import TokenCount, count_tokens
from outrider.catalog.formats.vendors import RULES, SchemaRules, Vendor, VendorRules

__all__ = [
    "RULES",
    "Aliases",
    "CallFailed",
    "Change",
    "Effect",
    "LeftOut",
    "Malformed",
    "ModelCall",
    "Offered",
    "OfferedTool",
    "Page",
    "ResultOptions",
    "SchemaRules",
    "TokenCount",
    "ToolRef",
    "UnknownTool",
    "Vendor",
    "VendorRules",
    "count_tokens",
    "offer",
    "page_text",
    "read_arguments",
    "read_calls",
    "render_results",
    "restore_arguments",
    "result_text",
    "shown_name",
]
