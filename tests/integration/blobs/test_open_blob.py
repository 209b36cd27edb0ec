"""URLs of blob stores."""

from __future__ import annotations

import asyncio
from pathlib import Path
from urllib.parse import quote

import pytest

from rune.adapters.blobs.filesystem import FilesystemBlobs
from rune.adapters.blobs.open_blob import open_blob
from rune.adapters.blobs.s3 import S3Blobs
from rune.settings import SettingsError
from tests.support.services.s3_server import KEYS, NAME, s3_server

SECRET = "a-secret-password"
ENVIRONMENT = {"AWS_ACCESS_KEY_ID": KEYS.id, "AWS_SECRET_ACCESS_KEY": KEYS.secret}


def test_file_url_opens_folder(tmp_path: Path) -> None:
    folder = tmp_path / "with space" / "blobs"
    blob = open_blob(f"file://{quote(str(folder))}")
    assert isinstance(blob, FilesystemBlobs)
    asyncio.run(blob.put("x/a", b"data"))
    assert len([each for each in folder.rglob("*") if each.is_file()]) == 1


def test_s3_url_opens_bucket(tmp_path: Path) -> None:
    server = s3_server()
    url = f"s3://{NAME}/from/{tmp_path.name}?endpoint={server.url}&region=eu-central-1"
    blob = open_blob(url, ENVIRONMENT)
    assert isinstance(blob, S3Blobs)
    asyncio.run(blob.put("x/a", b"data"))
    assert asyncio.run(open_blob(url, ENVIRONMENT).get("x/a")) == b"data"
    assert f"from/{tmp_path.name}/x/a" in server.listing()


def test_keys_are_read_from_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    assert isinstance(open_blob("s3://bucket"), S3Blobs)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("", "s3://bucket"),
        ("embedded", "not a location for blobs"),
        ("postgresql", "not a location for blobs"),
        ("postgresql://rune:a-secret-password@host/rune", "`postgresql://` is not a location"),
        ("gs://bucket", "`gs://` is not a location"),
        ("/folder", "file:///folder"),
        ("file://folder", "three slashes"),
        ("file:///folder?x=1", "is not a folder"),
        ("s3://", "not a bucket name"),
        ("s3://b", "not a bucket name"),
        ("s3://me:a-secret-password@bucket", "keys do not belong in the address"),
        ("s3://bucket/a/../b", "the prefix"),
        ("s3://bucket//a//b", "the prefix"),
        ("s3://bucket?acl=public", "`acl` is unknown"),
        ("s3://bucket?endpoint=host:9000", "http://host:port"),
        ("s3://bucket?endpoint=ftp://host", "http://host:port"),
        ("s3://bucket?endpoint=http://me:a-secret-password@host", "http://host:port"),
        ("s3://bucket?endpoint=http://host:port", "not a valid address"),
        ("s3://[bucket", "not a valid address"),
    ],
)
def test_invalid_url_is_explained(url: str, message: str) -> None:
    with pytest.raises(SettingsError, match="RUNE_BLOB") as caught:
        open_blob(url, ENVIRONMENT)
    assert message in caught.value.message
    assert SECRET not in caught.value.message


def test_missing_keys_are_named() -> None:
    with pytest.raises(SettingsError, match="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"):
        open_blob("s3://bucket", {})
    with pytest.raises(SettingsError, match=r"set AWS_SECRET_ACCESS_KEY$"):
        open_blob("s3://bucket", {"AWS_ACCESS_KEY_ID": "id"})


def test_file_in_place_of_folder_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "blobs").write_text("")
    with pytest.raises(SettingsError, match="cannot be used"):
        open_blob(f"file://{tmp_path}/blobs")
