"""What was published is obeyed whole or not at all."""

import asyncio
import gzip
import json
from pathlib import Path

import pytest
from freshgate_world import configuration

from freshgate_crds.compiled import FORMAT
from freshgate_service.errors import ConfigRefused
from freshgate_service.published import CONFIG_FILE, MountedSecret, parse


def mounted(folder: Path, text: bytes, **credentials: str) -> MountedSecret:
    """As the kubelet mounts a Secret: each file a link through `..data` to a folder of this version."""
    version = folder / f"..{len(list(folder.iterdir()))}"
    version.mkdir()
    (version / CONFIG_FILE).write_bytes(text)
    for name, value in credentials.items():
        (version / name).write_text(value)
    new = folder / "..data_tmp"
    new.symlink_to(version.name)
    new.rename(folder / "..data")
    for path in version.iterdir():
        if not (folder / path.name).is_symlink():
            (folder / path.name).symlink_to(f"..data/{path.name}")
    return MountedSecret(folder)


def compressed(counter: int = 1, **fields: object) -> bytes:
    config = configuration().model_dump(mode="json")
    config["revision"]["counter"] = counter
    return gzip.compress(json.dumps({**config, **fields}).encode())


def test_a_mounted_secret_gives_configuration_and_credentials_together(tmp_path):
    published = mounted(tmp_path, compressed(), desk_dsn="postgresql://desk\n").current()
    assert published.config == configuration(entitlements=published.config.entitlements)
    assert published.credentials == {"desk_dsn": "postgresql://desk"}


def test_credentials_stand_in_no_representation(tmp_path):
    assert "hidden" not in repr(mounted(tmp_path, compressed(), desk_dsn="hidden").current())


@pytest.mark.promise("CON-1")
@pytest.mark.parametrize(
    ("text", "names"),
    [
        (b"", "JSON"),
        (b"no gzip", "config.json.gz"),
        (compressed(format=FORMAT + 1), "format"),
        (compressed(surprise=1), "surprise"),
        (compressed(sources=None), "sources"),
        (compressed(entitlements={"policies": [{"name": "x", "unknown": 1}]}), "entitlements.policies"),
        (gzip.compress(b"{}"), "format"),
        (gzip.compress(b"[]"), "config.json.gz"),
        (gzip.compress(b""), "JSON"),
        (compressed()[:-20], "config.json.gz"),
    ],
)
def test_replay_47_what_is_not_understood_is_refused_by_name(tmp_path, text, names):
    with pytest.raises(ConfigRefused, match=names):
        mounted(tmp_path, text).current()


def test_a_missing_configuration_is_refused(tmp_path):
    with pytest.raises(ConfigRefused, match=CONFIG_FILE):
        MountedSecret(tmp_path).current()


def test_the_format_before_this_one_is_read():
    assert parse(gzip.decompress(compressed(format=FORMAT - 1))).format == FORMAT - 1


async def test_a_swapped_secret_is_told_once_and_a_refused_one_too(tmp_path):
    secret = mounted(tmp_path, compressed(1), desk_dsn="old")
    changes = secret.changes()
    first = anext(changes)
    task = asyncio.ensure_future(first)
    await asyncio.sleep(0)
    mounted(tmp_path, compressed(2), desk_dsn="new")
    published = await task
    assert (published.config.revision.counter, published.credentials) == (2, {"desk_dsn": "new"})
    task = asyncio.ensure_future(anext(changes))
    await asyncio.sleep(0)
    mounted(tmp_path, b"broken")
    assert isinstance(await task, ConfigRefused)
    await changes.aclose()
