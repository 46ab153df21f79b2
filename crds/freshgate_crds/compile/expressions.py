"""Whether paths and statements are well formed, before a source ever sees them.

For statements this is a courtesy to their writer: what keeps a source from being written to is the read-only
transaction and role, never this.
"""

import re
from collections.abc import Iterator
from typing import Any

import jmespath
from jmespath.exceptions import JMESPathError
from jmespath.functions import Functions

from freshgate_crds.compile.outcomes import Trouble

_OPAQUE = re.compile(
    r"--[^\n]*|/\*.*?\*/"  # comments
    r"|[eE]'(?:\\.|[^'\\])*'|'[^']*'|\"[^\"]*\""  # texts and names
    r"|\$((?:[A-Za-z_]\w*)?)\$.*?\$\1\$",  # dollar-quoted texts
    re.DOTALL,
)
_PARAMETER = re.compile(r"\$[0-9]+")


def path_troubles(field: str, path: str | None) -> Iterator[Trouble]:
    if path is None:
        return
    try:
        tree = jmespath.compile(path).parsed
    except JMESPathError as error:
        detail = str(error).splitlines()[0].rstrip(":")
        yield Trouble(field, "InvalidPath", f"this is no JMESPath ({detail})", "Correct the path; see jmespath.org")
    except RecursionError:
        yield Trouble(field, "InvalidPath", "this JMESPath is nested too deep", "Write a plainer path")
    else:
        yield from _function_troubles(field, tree)


def bare(statement: str) -> str:
    """As it can stand inside another."""
    return statement.rstrip("; \t\r\n").lstrip()


def statement_troubles(field: str, statement: str, *, binds: bool) -> Iterator[Trouble]:
    """`binds`: whether it takes the ids as $1, its only parameter."""
    code = _OPAQUE.sub(" ", bare(statement))
    if ";" in code:
        mend = "Leave one: whatever has to be prepared belongs into a view"
        yield Trouble(field, "InvalidStatement", "there is more than one statement", mend)
    if not re.match(r"[(\s]*(select|with)\b", code, re.IGNORECASE):
        mend = "Begin it with SELECT or WITH"
        yield Trouble(field, "InvalidStatement", "the statement does not read", mend)
    wanted = {"$1"} if binds else set()
    if set(_PARAMETER.findall(code)) != wanted:
        mend = "Bind $1 and nothing else, as in WHERE id = ANY($1)" if binds else "Write the statement without $1"
        yield Trouble(field, "InvalidStatement", "the statement's parameters are not those that it is given", mend)


def _function_troubles(field: str, tree: Any) -> Iterator[Trouble]:
    """The parser takes any function with any arguments; a record would be the first to find out."""
    nodes = [tree]
    while nodes:
        node = nodes.pop()
        nodes += [child for child in node["children"] if isinstance(child, dict)]
        if node["type"] == "function_expression":
            yield from _call_troubles(field, node["value"], len(node["children"]))


def _call_troubles(field: str, name: str, arguments: int) -> Iterator[Trouble]:
    function = Functions.FUNCTION_TABLE.get(name)
    if function is None:
        known = ", ".join(sorted(Functions.FUNCTION_TABLE))
        yield Trouble(field, "InvalidPath", f"JMESPath has no function `{name[:64]}`", f"Use one of {known}")
        return
    signature = function["signature"]
    variadic = bool(signature) and signature[-1].get("variadic", False)
    if arguments < len(signature) or (arguments > len(signature) and not variadic):
        least = "at least " if variadic else ""
        problem = f"{name}() does not take {arguments} arguments"
        yield Trouble(field, "InvalidPath", problem, f"Give it {least}{len(signature)}")
