"""Opens the blob store that RUNE_BLOB configures, and stores blobs as files, in one folder per execution.

A blob is written to a temporary file in its folder and renamed, so a reader finds all of it or nothing. A process that
crashes leaves at most a temporary file, which is deleted with its execution.

Keys of blobs are mapped to names of files and objects that are safe as parts of a path.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import secrets
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlsplit

from rune.adapters.private_files import FILE_MODE, FOLDER_MODE, make_private_folder
from rune.errors import RuneError
from rune.ports.journal import BlobStore, StoreUnavailableError
from rune.settings import SettingsError

if TYPE_CHECKING:
    from rune.adapters.blobs.s3 import Bucket


MAX_KEY_CHARS = 200
"""Longer names are replaced by their digest; file systems limit a name to 255 bytes."""


class InvalidBlobKeyError(RuneError):
    """A key does not have the form `execution/name`."""

    code = "BAD_KEY"


class BlobKey(NamedTuple):
    """Escaped names of an execution and a blob: not empty, without slashes and dots."""

    execution: str
    blob: str


def parse_blob_key(key: str) -> BlobKey:
    """Split and escape a key. Different keys have different results."""
    execution, slash, rest = key.partition("/")
    if not slash or not rest:
        raise InvalidBlobKeyError(f"`{_printable(key)}` is not a blob key: the form is `execution/name`")
    return BlobKey(execution_folder(execution), _escape(rest))


def execution_folder(execution: str) -> str:
    """Return the escaped name of an execution. An empty name is rejected, because it would match all executions."""
    if not execution or "/" in execution:
        raise InvalidBlobKeyError(f"`{_printable(execution)}` is not an execution id")
    return _escape(execution)


def fan_out(execution: str) -> tuple[str, str]:
    """Return two levels of folders for an execution, so that no folder has too many entries."""
    digest = hashlib.sha256(execution.encode()).hexdigest()
    return digest[:2], digest[2:4]


def is_fan_out(name: str) -> bool:
    """Return whether a name in the root folder is one of the folders of `fan_out`."""
    return len(name) == 2 and set(name) <= set("0123456789abcdef")


def _escape(part: str) -> str:
    """Percent-encode a name. Dots are encoded too, so that no name is `..` or starts with a dot."""
    plain = quote(part, safe="@", errors="surrogatepass").replace(".", "%2E")
    if len(plain) <= MAX_KEY_CHARS:
        return plain
    # No percent-encoded name starts with a plus, so digests cannot collide with other names.
    return "+" + hashlib.sha256(part.encode(errors="surrogatepass")).hexdigest()


def _printable(key: str) -> str:
    return key[:80].encode("ascii", "backslashreplace").decode()


T = TypeVar("T")
TEMPORARY_PREFIX = "."
"""Prefix of temporary files. No blob has a name that starts with it."""

PROBE_BYTES = 64 * 1024
"""How much `check_writable` writes."""

MAX_WRITE_TRIES = 5
"""How often a write or a removal is tried while another process removes or fills the same folder."""


class FilesystemBlobs:
    """Bytes by key, in a folder that any number of processes may share."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._durable: set[Path] = set()  # fan-out folders whose parent was synced

    async def put(self, key: str, data: bytes) -> None:
        name = parse_blob_key(key)
        await self._in_thread(lambda: self._write(name, data))

    async def get(self, key: str) -> bytes | None:
        try:
            name = parse_blob_key(key)
        except InvalidBlobKeyError:
            return None
        return await self._in_thread(lambda: self._read(name))

    async def delete(self, execution: str) -> int:
        name = execution_folder(execution)
        return await self._in_thread(lambda: self._remove(name))

    async def check_writable(self) -> None:
        """Raise StoreUnavailableError if the folder cannot be written, such as on a full disk."""
        await self._in_thread(self._write_probe)

    def _write_probe(self) -> None:
        # Without a name where the file system supports that, so that a killed process leaves nothing.
        with tempfile.TemporaryFile(dir=self.folder, prefix=TEMPORARY_PREFIX, buffering=0) as file:
            file.write(bytes(PROBE_BYTES))

    async def _in_thread(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.to_thread(work)
        except OSError as error:
            reason = error.strerror or str(error)
            raise StoreUnavailableError(f"the blob folder {self.folder} cannot be used: {reason}") from error

    def _folder_of(self, execution: str) -> Path:
        return self.folder.joinpath(*fan_out(execution), execution)

    def _write(self, name: BlobKey, data: bytes) -> None:
        home = self._folder_of(name.execution)
        for tries_left in reversed(range(MAX_WRITE_TRIES)):
            try:
                self._make_folders(home)
                _write_atomically(home, name.blob, data)
            except FileNotFoundError:  # another process removed the folder of the execution
                self._durable.clear()
                if not tries_left or not self.folder.is_dir():
                    raise
            else:
                _fsync_folder(home)
                return

    def _make_folders(self, home: Path) -> None:
        """Create the folder of an execution and its parents, and make each of them durable.

        A process that finds a folder cannot know whether the process that created it has already synced the parent,
        so every process syncs it. Fan-out folders are never removed, so syncing once is enough for them.
        """
        for each in (home.parent.parent, home.parent, home):
            if each in self._durable:
                continue
            with suppress(FileExistsError):
                each.mkdir(mode=FOLDER_MODE)
            _fsync_folder(each.parent)
            if each is not home:
                self._durable.add(each)

    def _read(self, name: BlobKey) -> bytes | None:
        try:
            with open(self._folder_of(name.execution) / name.blob, "rb", opener=_open_private) as file:
                return file.read()
        except FileNotFoundError:
            # Without the root folder, such as on an unmounted volume, the blob is unreachable, not missing.
            if not self.folder.is_dir():
                raise
            return None

    def _remove(self, execution: str) -> int:
        """Remove files until the folder is empty: another process may still be writing."""
        home = self._folder_of(execution)
        count = 0
        for _ in range(MAX_WRITE_TRIES):
            try:
                count += _remove_files(home)
            except FileNotFoundError:
                if not self.folder.is_dir():
                    raise
                return count
            try:
                home.rmdir()
            except OSError:  # not empty: try again
                continue
            _fsync_folder(home.parent)
            break
        return count


def _write_atomically(home: Path, name: str, data: bytes) -> None:
    temporary = home / f"{TEMPORARY_PREFIX}{secrets.token_hex(12)}"
    try:
        with open(temporary, "xb", opener=_open_private) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        # crash here: the blob does not exist under its name; the temporary file is deleted with the execution
        os.replace(temporary, home / name)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


def _remove_files(home: Path) -> int:
    """Remove the files of a folder and return how many were blobs. A symbolic link in its place is an error."""
    folder = os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    count = 0
    try:
        for entry in os.listdir(folder):
            with suppress(FileNotFoundError):
                os.unlink(entry, dir_fd=folder)
                count += not entry.startswith(TEMPORARY_PREFIX)
    finally:
        os.close(folder)
    return count


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)


def _fsync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


URL_FORMS = "`file:///folder` or `s3://bucket/prefix?endpoint=https://host&region=…`"
ACCESS_KEY_VARIABLE, SECRET_KEY_VARIABLE = "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"
_SCHEME = re.compile(r"[a-z0-9+.-]{1,20}")
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,62}")
_PREFIX = re.compile(r"[A-Za-z0-9_-]+(?:/[A-Za-z0-9_-]+)*")


def open_blob(url: str, environment: Mapping[str, str] | None = None) -> BlobStore:
    """Open a blob store outside the database. A remote service is not contacted before the first blob."""
    scheme, separator, _ = url.partition("://")
    if scheme == "file":
        return _open_files(url)
    if scheme == "s3":
        return _open_s3(url, os.environ if environment is None else environment)
    shown = f"`{scheme}://`" if separator and _SCHEME.fullmatch(scheme) else "this"
    raise SettingsError(f"RUNE_BLOB: {shown} is not a location for blobs; use {URL_FORMS}")


def _open_files(url: str) -> FilesystemBlobs:
    parts = _split(url)
    path = unquote(parts.path)
    if parts.netloc or not path.startswith("/") or parts.query or parts.fragment or "\0" in path:
        raise SettingsError(f"RUNE_BLOB: `{url}` is not a folder; use three slashes: `file:///folder`")
    folder = Path(path)
    try:
        make_private_folder(folder, is_fan_out)
    except OSError as error:
        reason = error.strerror or str(error)
        raise SettingsError(f"RUNE_BLOB: the folder {folder} cannot be used: {reason}") from error
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        raise SettingsError(f"RUNE_BLOB: the folder {folder} cannot be used: permission denied")
    return FilesystemBlobs(folder)


def _open_s3(url: str, environment: Mapping[str, str]) -> BlobStore:
    try:
        from rune.adapters.blobs.s3 import AccessKeys, S3Blobs  # noqa: PLC0415 - the S3 client is optional
    except ModuleNotFoundError as missing:
        raise SettingsError(
            f"RUNE_BLOB: s3:// needs the package `{missing.name}`; install rune-engine[cluster]"
        ) from None
    bucket = _parse_bucket(url, environment)
    absent = [name for name in (ACCESS_KEY_VARIABLE, SECRET_KEY_VARIABLE) if not environment.get(name)]
    if absent:
        raise SettingsError(
            f"RUNE_BLOB: s3:// reads its keys from the environment; set {' and '.join(absent)}"
        )
    session = environment.get("AWS_SESSION_TOKEN", "")
    return S3Blobs(
        bucket, AccessKeys(environment[ACCESS_KEY_VARIABLE], environment[SECRET_KEY_VARIABLE], session)
    )


def _parse_bucket(url: str, environment: Mapping[str, str]) -> Bucket:
    from rune.adapters.blobs.s3 import Bucket  # noqa: PLC0415 - as above

    parts = _split(url)
    if "@" in parts.netloc:
        raise SettingsError(
            f"RUNE_BLOB: keys do not belong in the address; set {ACCESS_KEY_VARIABLE} and {SECRET_KEY_VARIABLE}"
        )
    prefix = unquote(parts.path).strip("/")
    if not _BUCKET.fullmatch(parts.netloc):
        raise SettingsError(f"RUNE_BLOB: `{parts.netloc[:80]}` is not a bucket name; use {URL_FORMS}")
    if prefix and not _PREFIX.fullmatch(prefix):
        raise SettingsError(
            f"RUNE_BLOB: the prefix `{prefix[:80]}` may contain letters, digits, `-`, `_` and single slashes"
        )
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    unknown = sorted(options.keys() - {"endpoint", "region"})
    if unknown or parts.fragment:
        raise SettingsError(
            f"RUNE_BLOB: `{(unknown or [parts.fragment])[0][:40]}` is unknown; use {URL_FORMS}"
        )
    region = options.get("region") or environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")
    return Bucket(parts.netloc, prefix, _parse_endpoint(options.get("endpoint", "")), region or "us-east-1")


def _parse_endpoint(text: str) -> str:
    if not text:
        return ""
    parts = _split(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        raise SettingsError("RUNE_BLOB: the endpoint must be `http://host:port` or `https://host`")
    return text.rstrip("/")


def _split(text: str) -> SplitResult:
    try:
        parts = urlsplit(text)
        _ = parts.port  # urlsplit validates the port only when it is read
    except ValueError as error:
        raise SettingsError(f"RUNE_BLOB: not a valid address ({error}); use {URL_FORMS}") from None
    return parts
