"""Commands that a server cannot be asked for, and why."""

from __future__ import annotations

from rune.settings import Settings

WHY = {
    "audit": "reads every row of the journal, which no server gives away",
    "gc": "removes executions from the stores for good",
    "backup": "copies the file of the machine that it runs on",
    "restore": "puts back the file of the machine that it runs on",
    "migrate": "changes the tables of the database, which servers have no right to",
    "credentials rekey": "needs the keys that seal, old and new",
    "credentials key new": "writes the file with the keys that seal",
    "nodes --nodes": "loads modules of the machine that it runs on",
}


def stay_here(settings: Settings, command: str) -> None:
    """Refuse a command whose work lies where the server runs, if the settings name one."""
    if settings.url:
        from rune.compose import NotOverUrl  # noqa: PLC0415 - slow, and only a refusal needs it

        raise NotOverUrl(
            f"`rune {command}` {WHY[command]}: unset RUNE_URL ({settings.url}) and run it where the server runs"
        )
