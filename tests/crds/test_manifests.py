"""How a folder of manifests is read: one meaning for each file, or a problem with its place."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from freshgate_written import desk, policy, source, workspace
from hypothesis import given
from hypothesis import strategies as st

from freshgate_crds import strict_yaml
from freshgate_crds.errors import ManifestsUnavailable, WorkspaceNotChosen, YamlRefused
from freshgate_crds.manifests import MAX_FILE_BYTES, Document, Manifests, choose_workspace, load_directory


def write(folder: Path, **files: Any) -> None:
    """Each file from its text, or from the resources that it is to hold. `a__b` is b.yaml in a."""
    for name, content in files.items():
        path = folder / f"{name.replace('__', '/')}.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(content if isinstance(content, str) else yaml.safe_dump_all(content), encoding="utf-8")


def named(manifests: Manifests) -> list[tuple[str, str]]:
    return [(document.name, str(document.place)) for document in manifests.documents]


def problems(manifests: Manifests) -> list[tuple[str, str]]:
    return [(str(problem.place), problem.reason) for problem in manifests.problems]


def values(text: str | bytes) -> list[Any]:
    data = text if isinstance(text, bytes) else text.encode()
    return [document.value for document in strict_yaml.documents(data)]


# --- a folder ----------------------------------------------------------------------------------------------------


def test_all_files_are_read_in_the_order_of_their_paths_and_every_document_keeps_its_place(tmp_path):
    write(tmp_path, b=[source("one"), source("two")], a__z=[workspace()], a__b=[policy("p")])
    (tmp_path / "c.yml").write_text("# nothing yet\n---\n---\n" + yaml.safe_dump(source("three")), encoding="utf-8")
    manifests = load_directory(tmp_path)
    assert manifests.problems == ()
    assert [(name, place.split(":")[0]) for name, place in named(manifests)] == [
        ("p", "a/b.yaml"),
        ("support", "a/z.yaml"),
        ("one", "b.yaml"),
        ("two", "b.yaml"),
        ("three", "c.yml"),
    ]
    assert dict(named(manifests))["three"] == "c.yml:4"


def test_a_resource_without_a_namespace_is_in_the_default_one(tmp_path):
    write(tmp_path, a=f"{NAMELESS % '{name: a}'}\n---\n{NAMELESS % '{name: b, namespace: ~}'}")
    assert [document.namespace for document in load_directory(tmp_path).documents] == ["default", "default"]


def test_a_list_as_kubectl_prints_it_is_read_as_its_items(tmp_path):
    write(tmp_path, a=[{"apiVersion": "v1", "kind": "List", "items": [source("one"), policy("p")]}])
    assert [name for name, _ in named(load_directory(tmp_path))] == ["one", "p"]


def test_other_kinds_are_not_read_and_a_note_says_so(tmp_path):
    write(tmp_path, a=[{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x"}}, source()])
    manifests = load_directory(tmp_path)
    assert [name for name, _ in named(manifests)] == ["tickets"]
    assert [(str(note.place), "Deployment" in note.text) for note in manifests.notes] == [("a.yaml:1", True)]


def test_hidden_files_are_not_read_and_linked_folders_are_noted(tmp_path):
    write(tmp_path, a=[source()])
    (tmp_path / ".b.yaml").write_text("{", encoding="utf-8")
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "c.yaml").write_text("{", encoding="utf-8")
    (tmp_path / "loop").symlink_to(tmp_path)
    manifests = load_directory(tmp_path)
    assert [name for name, _ in named(manifests)] == ["tickets"]
    assert [note.text for note in manifests.notes] == ["loop is a link to a folder and is not read"]


def test_a_mounted_volume_is_read_through_its_links(tmp_path):
    write(tmp_path, **{".2026__a": [source()]})
    (tmp_path / "..data").symlink_to(".2026")
    (tmp_path / "a.yaml").symlink_to("..data/a.yaml")
    assert named(load_directory(tmp_path)) == [("tickets", "a.yaml:1")]


def test_a_folder_that_is_not_there_is_no_empty_folder(tmp_path):
    for path in (tmp_path / "gone", tmp_path / "a.yaml"):
        (tmp_path / "a.yaml").touch()
        with pytest.raises(ManifestsUnavailable, match=path.name):
            load_directory(path)


# --- files that cannot be read -----------------------------------------------------------------------------------

NAMELESS = "{apiVersion: freshgate.dev/v1alpha1, kind: MemorySource, metadata: %s, spec: {}}"
UNREADABLE = {
    "no YAML": ("a: [\n", "NotYaml"),
    "a field twice": ("a: 1\nb: 2\na: 3\n", "NotYaml"),
    "a text": ("just text\n", "NoResource"),
    "a list": ("- kind: MemorySource\n", "NoResource"),
    "no kind": ("apiVersion: freshgate.dev/v1alpha1\nmetadata: {name: x}\n", "NoResource"),
    "a kind that does not exist": ("apiVersion: freshgate.dev/v1alpha1\nkind: EntitlementPolcy\n", "NoResource"),
    "a list without items": ("apiVersion: v1\nkind: List\n", "NoResource"),
    "no metadata": (NAMELESS % "~", "NoResource"),
    "no name": (NAMELESS % "{}", "NoResource"),
    "a blank name": (NAMELESS % "{name: ''}", "NoResource"),
    "a name that leaves the folder": (NAMELESS % "{name: ../x}", "NoResource"),
    "a name of two lines": (NAMELESS % '{name: "x\\n"}', "NoResource"),
    "a namespace that cannot exist": (NAMELESS % "{name: x, namespace: A}", "NoResource"),
    "a namespace that is no text": (NAMELESS % "{name: x, namespace: 3}", "NoResource"),
}


@pytest.mark.parametrize("case", UNREADABLE)
def test_replay_47_a_file_that_cannot_be_read_is_a_problem_with_its_place_and_harms_no_other(case, tmp_path):
    text, reason = UNREADABLE[case]
    write(tmp_path, a=[source("one")], b=text, c=[source("two")])
    manifests = load_directory(tmp_path)
    assert [name for name, _ in named(manifests)] == ["one", "two"]
    assert [(place.split(":")[0], why) for place, why in problems(manifests)] == [("b.yaml", reason)]
    assert manifests.unknown == ("b.yaml",)
    assert "counts as a Deny of everything" in manifests.problems[0].message


def test_a_file_that_is_too_large_is_not_read(tmp_path):
    write(tmp_path, a="#" * (MAX_FILE_BYTES + 1))
    assert problems(load_directory(tmp_path)) == [("a.yaml:1", "FileTooLarge")]


def test_a_link_to_nothing_is_a_problem(tmp_path):
    (tmp_path / "a.yaml").symlink_to("gone")
    assert problems(load_directory(tmp_path)) == [("a.yaml:1", "FileUnreadable")]


@pytest.mark.promise("CON-1")
def test_a_file_that_breaks_keeps_what_was_last_read_of_it(tmp_path):
    write(tmp_path, a=[source("one"), policy("p")], b=[source("two")])
    manifests = load_directory(tmp_path)
    for text in ("{", "a: 1\na: 2\n", "just text"):
        write(tmp_path, a=text, b=[source("three")])
        manifests = load_directory(tmp_path, manifests)
        assert [name for name, _ in named(manifests)] == ["one", "p", "three"]
        assert manifests.unknown == ()
        assert "what was last read of it stays in force" in manifests.problems[0].message
    write(tmp_path, a=[source("four")])
    manifests = load_directory(tmp_path, manifests)
    assert [name for name, _ in named(manifests)] == ["four", "three"]
    assert manifests.problems == ()


@pytest.mark.promise("CON-1")
def test_a_new_file_that_is_broken_changes_nothing_while_it_runs(tmp_path):
    write(tmp_path, a=[source("one")])
    before = load_directory(tmp_path)
    write(tmp_path, b="{")
    after = load_directory(tmp_path, before)
    assert (after.documents, after.unknown) == (before.documents, ())


def test_a_file_that_was_broken_from_the_start_stays_unknown_until_it_is_mended_or_deleted(tmp_path):
    write(tmp_path, a="{", b="{")
    first = load_directory(tmp_path)
    (tmp_path / "b.yaml").unlink()
    second = load_directory(tmp_path, first)
    write(tmp_path, a=[source("one")])
    third = load_directory(tmp_path, second)
    assert [each.unknown for each in (first, second, third)] == [("a.yaml", "b.yaml"), ("a.yaml",), ()]


def test_a_file_that_is_deleted_takes_its_documents_along(tmp_path):
    write(tmp_path, a=[source("one")], b=[source("two")])
    before = load_directory(tmp_path)
    (tmp_path / "a.yaml").unlink()
    assert [name for name, _ in named(load_directory(tmp_path, before))] == ["two"]


# --- which workspace ---------------------------------------------------------------------------------------------


def in_namespace(namespace: str, name: str) -> Document:
    return Document("Workspace", namespace, name, {})


@pytest.mark.parametrize(
    ("name", "namespace", "chosen"),
    [
        ("sales", None, ("acme", "sales")),
        (None, "other", ("other", "support")),
        ("support", "acme", ("acme", "support")),
    ],
)
def test_the_workspace_that_is_meant_is_chosen(name, namespace, chosen):
    manifests = Manifests(
        (in_namespace("acme", "support"), in_namespace("acme", "sales"), in_namespace("other", "support"))
    )
    assert choose_workspace(manifests, name, namespace) == chosen


@pytest.mark.parametrize(("name", "namespace"), [(None, None), ("support", None), ("gone", None), (None, "gone")])
def test_where_not_one_workspace_is_meant_those_that_there_are_are_named(name, namespace):
    manifests = Manifests((in_namespace("acme", "support"), in_namespace("other", "support")))
    with pytest.raises(WorkspaceNotChosen, match="acme/support, other/support"):
        choose_workspace(manifests, name, namespace)


def test_the_only_workspace_needs_no_name():
    assert choose_workspace(Manifests((in_namespace("acme", "support"),)), None, None) == ("acme", "support")


# --- YAML that means one thing -----------------------------------------------------------------------------------

DISPUTED = {
    "a: no": "truth value",
    "a: On": "truth value",
    "a: y": "text to some",
    "a: 010": "different number",
    "a: 1_000": "different number",
    "a: 0x1f": "different number",
    "a: 0o17": "text to some",
    "a: 12:30": "different number",
    "a: 1e3": "text to some",
    "a: .inf": "no number that JSON has",
    "a: .nan": "no number that JSON has",
    "a: 1.5e+999": "no number that JSON has",
    f"a: {'9' * 5000}": "different number",
    "a: 1\na: 2": "stands here twice",
    "a: {b: {c: 1, c: 1}}": "stands here twice",
    "1: a": "a key is no text",
    "true: a": "a key is no text",
    "[a]: b": "a key is no text",
    "? {a: b}\n: c": "a key is no text",
    "a: &x {b: 1}\nc:\n  <<: *x": "merge",
    "a: !!binary aGk=": "tag !!binary",
    "a: !!set {b}": "tag !!set",
    "a: !!python/object/apply:os.getcwd []": "tag !!python",
    "a: !mine b": "tag !mine",
    "a: &x [*x]": "expand to too much",
    "a: &x {b: *x}": "expand to too much",
    "a: " + "[" * 5000: "nested deeper",
    "a: " + "{b: " * 5000: "nested deeper",
    "- " * 5000 + "a": "nested deeper",
    'a: "\\ud800"': "half of a surrogate pair",
    'a: "\\UFFFFFFFF"': "stands for no character",
    "a: *b": "undefined alias",
    "a: b: c": "not allowed here",
}


@pytest.mark.parametrize("text", DISPUTED)
def test_yaml_that_could_mean_two_things_is_refused(text):
    with pytest.raises(YamlRefused, match=DISPUTED[text]):
        values(text)


def test_what_is_refused_is_named_with_its_line():
    with pytest.raises(YamlRefused) as refused:
        values("a: 1\nb:\n  c: 2\n  d: 3\n  c: 4\n")
    assert refused.value.line == 5
    with pytest.raises(YamlRefused) as refused:
        values(b"a: b\nc: \xff")
    assert refused.value.line == 2


def test_a_small_file_does_not_become_a_large_one():
    levels = [
        f"{name}: &{name} [{', '.join([f'*{below}'] * 9)}]" for name, below in zip("bcdefghi", "abcdefgh", strict=True)
    ]
    with pytest.raises(YamlRefused, match="expand to too much"):
        values("\n".join(["a: &a [x, x, x, x, x, x, x, x, x]", *levels]))


def test_an_alias_within_bounds_is_written_out():
    assert values("a: &x [1, 2]\nb: *x") == [{"a": [1, 2], "b": [1, 2]}]


def test_times_stay_texts_as_json_has_them():
    assert values("a: 2026-11-30\nb: 2026-11-30T10:00:00Z\nc: =") == [
        {"a": "2026-11-30", "b": "2026-11-30T10:00:00Z", "c": "="}
    ]


def test_plain_values_are_what_they_look_like():
    text = "a: [true, False, ~, null, -3, +4, 0, 1.5, -2., \"no\", '010', 5m, 1h30m]"
    assert values(text) == [{"a": [True, False, None, None, -3, 4, 0, 1.5, -2.0, "no", "010", "5m", "1h30m"]}]


printable = st.text(st.characters(min_codepoint=32, exclude_categories=("Cs", "Cc", "Cn", "Co")), max_size=8)
plain = st.none() | st.booleans() | st.integers(-(10**15), 10**15) | st.sampled_from([0.5, -1.25]) | printable
json_values = st.recursive(
    plain, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(printable, inner, max_size=3)
)


@given(st.dictionaries(printable, json_values, max_size=3))
def test_json_means_what_json_says(value):
    assert values(json.dumps(value, ensure_ascii=False)) == [value]


@given(st.binary(max_size=60) | st.text("ab:-[]{}&*!?|>'\"#%@,\n 0x.~<\\Uu", max_size=40).map(str.encode))
def test_replay_47_no_file_makes_reading_fail_in_another_way(data):
    try:
        found = values(data)
    except YamlRefused:
        return
    json.dumps(found, allow_nan=False).encode()


def test_the_whole_desk_survives_being_written_and_read(tmp_path):
    write(tmp_path, desk=desk())
    assert [document.body for document in load_directory(tmp_path).documents] == desk()
