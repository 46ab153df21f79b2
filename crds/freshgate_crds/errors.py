"""The errors of the resources.

ManifestError               what was written cannot be obeyed; the message is for the one who wrote it
├── DurationMalformed       also a ValueError, so that pydantic reports it at its field
├── SchemaUnrenderable      a model asks for what an API server would refuse, or accept and not enforce
├── ManifestsUnavailable    the folder of manifests is not there
├── YamlRefused             a file is no YAML, or means different things to different readers; `line` says where
├── DocumentRefused         a document names no resource of a kind that is known
└── WorkspaceNotChosen      there is no such Workspace, or several and none was named
"""


class ManifestError(Exception):
    """Root of the resources' errors."""


class DurationMalformed(ManifestError, ValueError): ...


class SchemaUnrenderable(ManifestError): ...


class ManifestsUnavailable(ManifestError): ...


class YamlRefused(ManifestError):
    def __init__(self, line: int, problem: str) -> None:
        super().__init__(problem)
        self.line = line


class DocumentRefused(ManifestError): ...


class WorkspaceNotChosen(ManifestError): ...
