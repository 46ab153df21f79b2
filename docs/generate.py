"""Writes the documentation that is made from code, so that it cannot say anything else.

    python docs/generate.py

Whole files: docs/{manifests,metrics,config}.md and docs/openapi.json. In other pages, what stands between
`<!-- code: FILE NAME -->` and `<!-- end -->` is the source of that function, class or method, word for word.
"""

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import click
import yaml

from freshgate_crds.cli import SUMMARIES
from freshgate_service.metrics import Metrics
from freshgate_service.serve import openapi

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
MADE = "<!-- Made by `make generate` from {}: edits here are lost. -->\n\n"
CODE = re.compile(r"<!-- code: (?P<file>\S+) (?P<name>\S+) -->\n.*?<!-- end -->", re.DOTALL)
LIMITS = ("minLength", "maxLength", "minimum", "maximum", "minItems", "maxItems", "maxProperties", "enum", "format")


def main() -> None:
    (DOCS / "manifests.md").write_text(manifests(), "utf-8")
    (DOCS / "metrics.md").write_text(metrics(), "utf-8")
    (DOCS / "config.md").write_text(config(), "utf-8")
    (DOCS / "openapi.json").write_bytes(openapi.document() + b"\n")
    for page in sorted([*DOCS.rglob("*.md"), ROOT / "README.md"]):
        text = page.read_text("utf-8")
        included = CODE.sub(include, text)
        if included != text:
            page.write_text(included, "utf-8")
    sys.stdout.write("docs written\n")


# --- code in pages ---------------------------------------------------------------------------------------------------


def include(found: re.Match[str]) -> str:
    source = definition(ROOT / found["file"], found["name"])
    return f"<!-- code: {found['file']} {found['name']} -->\n```python\n{source}\n```\n<!-- end -->"


def definition(path: Path, name: str) -> str:
    """The source of `function`, `Class` or `Class.method`, without the indentation it has there."""
    text = path.read_text("utf-8")
    body: list[ast.stmt] = ast.parse(text).body
    node: Any = None
    for step in name.split("."):
        node = next(each for each in body if getattr(each, "name", None) == step)
        body = getattr(node, "body", [])
    return textwrap.dedent("\n".join(text.splitlines()[node.lineno - 1 : node.end_lineno]))


# --- manifests -------------------------------------------------------------------------------------------------------


def manifests() -> str:
    text = MADE.format("the custom resources") + (
        "# Manifests\n\nThe three custom resources, group `freshgate.dev`, version `v1alpha1`, all namespaced. What is "
        "not listed is refused. `freshgate validate -f DIR` says what a cluster would say.\n"
    )
    for path in sorted((ROOT / "crds").glob("*.yaml")):
        spec = yaml.safe_load(path.read_text("utf-8"))["spec"]
        schema = spec["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
        text += f"\n## {spec['names']['kind']}\n\n"
        text += table(("field", "type", "meaning"), _fields(schema, "spec"))
        text += "".join(f"\n- {rule}" for rule in dict.fromkeys(_rules(schema, "spec"))) + "\n"
    return text


def _fields(schema: Mapping[str, Any], path: str) -> Iterator[tuple[str, str, str]]:
    required = set(schema.get("required", ()))
    for name, field in schema.get("properties", {}).items():
        here = f"{path}.{name}"
        bounds = ", ".join(f"{key} {_brief(field[key])}" for key in LIMITS if key in field)
        told = field.get("description", "").replace("\n", " ")
        yield f"`{here}`" + (" *" if name in required else ""), _type(field), f"{told} {bounds}".strip()
        yield from _fields(field, here)
        yield from _fields(field.get("items", {}), f"{here}[]")


def _type(field: Mapping[str, Any]) -> str:
    kind = str(field.get("type", "integer or string"))
    return f"list of {_type(field['items'])}" if kind == "array" else kind


def _brief(value: Any) -> str:
    return " | ".join(map(str, value)) if isinstance(value, list) else str(value)


def _rules(schema: Mapping[str, Any], path: str) -> Iterator[str]:
    for rule in schema.get("x-kubernetes-validations", ()):
        yield f"`{path}`: {rule['message']}"
    for name, field in schema.get("properties", {}).items():
        yield from _rules(field, f"{path}.{name}")
    if "items" in schema:
        yield from _rules(schema["items"], f"{path}[]")


# --- metrics and settings --------------------------------------------------------------------------------------------


def metrics() -> str:
    rows = [
        (f"`{each.name}`", each.kind, ", ".join(f"`{label}`" for label in ("workspace", *each.labels)), each.help)
        for each in sorted(Metrics("workspace").describe())
    ]
    return (
        MADE.format("the registry")
        + (
            "# Metrics\n\n"
            "On the ops port under `/metrics`, for holders of the scrape token or an allowed ServiceAccount. "
            "Counters exist at 0 from the start; gauges of a source come from the process that runs the loop. No label "
            "ever holds a person, a query or an object.\n\n"
        )
        + table(("metric", "type", "labels", "meaning"), rows)
    )


def config() -> str:
    text = MADE.format("the commands") + (
        "# Commands and their settings\n\nExit status: 0 done, 1 refused or failed, 2 misused.\n"
    )
    for entry in sorted(entry_points(group="freshgate.commands"), key=lambda each: [*SUMMARIES].index(each.name)):
        command: click.Command = entry.load()
        text += f"\n## freshgate {entry.name}\n\n{_help(command)}\n\n"
        text += table(("setting", "default", "meaning"), _settings(command))
    return text


def _help(command: click.Command) -> str:
    paragraphs = inspect.cleandoc(command.help or "").split("\n\n")
    return "\n\n".join(
        "```sh\n" + each.removeprefix("\b\n") + "\n```" if each.startswith("\b") else " ".join(each.split())
        for each in paragraphs
    )


def _settings(command: click.Command) -> Iterator[tuple[str, str, str]]:
    context = click.Context(command)
    for parameter in command.params:
        names = " ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
        told = getattr(parameter, "help", None) or ""
        variable = f" Also from `{parameter.envvar}`." if parameter.envvar and str(parameter.envvar) not in told else ""
        yield names, _default(parameter, context), told + variable


def _default(parameter: click.Parameter, context: click.Context) -> str:
    if parameter.required:
        return "required"
    default = parameter.get_default(context)
    return "" if default in (None, False, ()) or "UNSET" in repr(default) else f"`{default}`"


def table(head: tuple[str, ...], rows: Any) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


if __name__ == "__main__":
    main()
