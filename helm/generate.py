"""Writes the chart's CRDs from crds/*.yaml: `python helm/generate.py`.

They are templates, not files under the chart's `crds/`, which Helm installs once and never upgrades. The keep policy
leaves them, and all that users wrote, when the chart is uninstalled.
"""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TEMPLATES = ROOT / "helm" / "freshgate" / "templates" / "crds"
HEAD = "\nmetadata:\n"
KEEP = "  annotations:\n    helm.sh/resource-policy: keep\n"


def main() -> None:
    TEMPLATES.mkdir(parents=True, exist_ok=True)
    for path in sorted((ROOT / "crds").glob("*.yaml")):
        (TEMPLATES / path.name).write_text(template(path.read_text("utf-8")), "utf-8")


def template(crd: str) -> str:
    before, metadata, after = crd.partition(HEAD)
    if not metadata or "{{" in crd:
        raise ValueError("this is no CRD that can stand in a template as it is")
    return f"{{{{- if .Values.crds.install }}}}\n{before}{metadata}{KEEP}{after}{{{{- end }}}}\n"


if __name__ == "__main__":
    main()
