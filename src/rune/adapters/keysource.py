"""Where the keys come from: the environment, or a file that only its owner can read."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rune.adapters.keyring import KeyRing, key_name, new_key, read_keys
from rune.ports.secret import KeyProblem

_LARGEST = 64 * 1024
_HEAD = "# Keys of Rune's credentials. The first one seals, all of them open. Without them the credentials are lost.\n"


class KeySource:
    """Gives the ring. A file is read again when it has changed, so a new key needs no new start."""

    def __init__(self, text: str, file: Path) -> None:
        self._text = text
        self.file = file
        self._ring: KeyRing | None = None
        self._seen: tuple[int, int, int] | None = None

    def __repr__(self) -> str:
        return f"KeySource({self.where})"

    @property
    def where(self) -> str:
        """What to look at when something is wrong."""
        return "RUNE_SECRET_KEY" if self._text else str(self.file)

    @property
    def is_file(self) -> bool:
        """Whether keys are kept in a file."""
        return not self._text

    def ring(self) -> KeyRing:
        """The keys as they are now."""
        if self._text:
            if self._ring is None:
                self._ring = KeyRing(read_keys(self._text, self.where))
            return self._ring
        try:
            found = self.file.stat()
        except FileNotFoundError:
            raise KeyProblem(
                f"there is no key: neither RUNE_SECRET_KEY nor the file {self.file}",
                code="SECRET_KEY_MISSING",
            ) from None
        except OSError as error:
            raise _unreadable(self.file, error) from None
        seen = (found.st_mtime_ns, found.st_ctime_ns, found.st_ino)
        if self._ring is None or seen != self._seen:
            self._ring, self._seen = KeyRing(self._read()), seen
        return self._ring

    def _read(self) -> list[bytes]:
        try:
            with self.file.open("rb") as file:
                mode = os.fstat(file.fileno()).st_mode
                if mode & 0o077:
                    raise KeyProblem(
                        f"{self.file} can be read by others (mode {mode & 0o777:04o}): chmod 600 it",
                        code="SECRET_KEY_UNSAFE",
                    )
                text = file.read(_LARGEST).decode("utf-8", "replace")
        except OSError as error:
            raise _unreadable(self.file, error) from None
        return read_keys(text, str(self.file))

    def ring_beside(self, count: int, key: str | None) -> KeyRing:
        """The keys, to seal one more than so many that are sealed with this key. A first one is made only where nothing
        is sealed: otherwise one was lost, and that must be seen."""
        if not count:
            return self.ring_or_new()
        try:
            return self.ring()
        except KeyProblem as problem:
            if problem.code != "SECRET_KEY_MISSING":
                raise
            sealed = "1 credential is" if count == 1 else f"{count} credentials are"
            raise KeyProblem(
                f"{problem.message}; {sealed} sealed with the key {key}: bring it back", code=problem.code
            ) from None

    def ring_or_new(self) -> KeyRing:
        """The keys; if there never were any, a first one is made."""
        if self.is_file and not self.file.exists():
            self.add()
        return self.ring()

    def add(self) -> str:
        """Put a new key before those that are there; answers its name. A crash leaves the old file or the new one."""
        if not self.is_file:
            raise KeyProblem(
                "the keys come from RUNE_SECRET_KEY: put a new one first there, before the old ones",
                code="SECRET_KEY_ENVIRONMENT",
            )
        key = new_key()
        try:
            with _alone(self.file.parent):
                old = ""
                if self.file.exists():
                    self._read()
                    old = self.file.read_text()
                _write(self.file, f"{_HEAD}{key}\n{old.removeprefix(_HEAD)}")
        except OSError as error:
            raise _unreadable(self.file, error) from None
        (made,) = read_keys(key, self.where)
        return key_name(made)


def _unreadable(file: Path, error: OSError) -> KeyProblem:
    why = (error.strerror or type(error).__name__).lower()
    return KeyProblem(f"{file}: {why}", code="SECRET_KEY_MISSING")


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _write(file: Path, text: str) -> None:
    """Under another name first: a key that is half written would be a key that is lost."""
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(handle, "w") as opened:
            opened.write(text)
            opened.flush()
            os.fsync(opened.fileno())
        draft.rename(file)
    finally:
        draft.unlink(missing_ok=True)
    folder = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
