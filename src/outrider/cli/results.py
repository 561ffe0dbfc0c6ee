"""What a tool gave back, for a terminal: texts, structured results, and files that are written on request.

Decided here: how each kind of content is shown, and what a file is called: the name and the place are ours, a server chooses neither. No
file that is there already is touched. Not here: the result as it came (`outrider call --json`).
"""

from __future__ import annotations

import base64
import binascii
import itertools
import mimetypes
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click

from outrider.cli.text import visible
from outrider.errors import OutriderError

__all__ = ["SaveFailed", "save_files", "show_result"]

_ENDINGS: Final = {
    "application/json": ".json", "application/pdf": ".pdf", "application/zip": ".zip", "audio/aac": ".aac", "audio/flac": ".flac",
    "audio/mp3": ".mp3", "audio/mp4": ".m4a", "audio/mpeg": ".mp3", "audio/ogg": ".ogg", "audio/wav": ".wav", "audio/wave": ".wav",
    "audio/webm": ".weba", "audio/x-wav": ".wav", "image/avif": ".avif", "image/bmp": ".bmp", "image/gif": ".gif", "image/heic": ".heic",
    "image/jpeg": ".jpg", "image/jpg": ".jpg", "image/png": ".png", "image/svg+xml": ".svg", "image/webp": ".webp",
    "text/csv": ".csv", "text/html": ".html", "text/markdown": ".md", "text/plain": ".txt", "video/mp4": ".mp4", "video/webm": ".webm",
}  # fmt: skip
"""The usual types; what the machine knows of others depends on what is installed on it."""


class SaveFailed(OutriderError):
    """A file of a result could not be written. The call itself was done.

    Attributes:
        saved: the files that were written before, as `save_files` returns them.
    """

    def __init__(self, message: str, saved: dict[int, Path], *, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.saved = saved


def show_result(result: Any, saved: dict[int, Path]) -> None:
    """Write a result to stdout; `saved` says which of its blocks are in which file."""
    if sys.stderr.isatty():
        click.echo("\r\x1b[K", nl=False, err=True)
    if result.is_error:
        click.secho("The tool reports an error:", fg="red", err=True)
    shown_text = False
    for position, block in enumerate(result.content):
        if block.text is not None:
            click.echo(visible(block.text, one_line=False))
            shown_text = shown_text or bool(block.text.strip())
        else:
            click.echo(_other_block(block, saved.get(position)))
    if result.has_structured_content and not shown_text:
        import msgspec

        click.echo(msgspec.json.format(msgspec.json.encode(result.structured_content)))


def save_files(result: Any, folder: Path) -> dict[int, Path]:
    """Write every file of a result into `folder`, which is made if need be.

    Returns:
        Where each block went, by its position in the result.

    Raises:
        SaveFailed: with what the system says; those written before stay.
    """
    saved: dict[int, Path] = {}
    for position, block in enumerate(result.content):
        if (data := _file_of(block)) is None:
            continue
        try:
            folder.mkdir(parents=True, exist_ok=True)
            saved[position] = _write(folder, f"result-{position + 1}", _ending(_mime_type(block)), data)
        except OSError as error:
            raise SaveFailed(
                f"the result could not be saved in {visible(str(folder))}: {(error.strerror or 'it cannot be written').lower()}",
                saved,
                hint="the tool was called all the same; call it again with another folder only if that does no harm",
            ) from error
    return saved


def _write(folder: Path, stem: str, ending: str, data: bytes) -> Path:
    for name in _names(stem, ending):
        path = folder / name
        try:
            file = path.open("xb")  # never over a file, nor through a link, that is there already
        except FileExistsError:
            if not folder.is_dir():
                raise
            continue
        try:
            with file:
                file.write(data)
        except OSError:
            path.unlink(missing_ok=True)  # half a picture helps nobody
            raise
        return path
    raise FileExistsError


def _names(stem: str, ending: str) -> Iterator[str]:
    yield f"{stem}{ending}"
    yield from (f"{stem}-{number}{ending}" for number in itertools.islice(itertools.count(2), 10_000))


def _ending(mime_type: str) -> str:
    plain = mime_type.partition(";")[0].strip().lower()
    return _ENDINGS.get(plain) or mimetypes.guess_extension(plain) or ".bin"


def _mime_type(block: Any) -> str:
    resource = block.resource or {}
    return str(block.mime_type or resource.get("mimeType") or "application/octet-stream")


def _encoded(block: Any) -> Any:
    return block.data or (block.resource or {}).get("blob")


def _file_of(block: Any) -> bytes | None:
    """The bytes that a block carries; None if it carries none."""
    encoded = _encoded(block)
    if block.text is not None or not isinstance(encoded, str):
        return None
    try:
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        return None


def _other_block(block: Any, path: Path | None) -> str:
    resource = block.resource or {}
    if isinstance(resource.get("text"), str):
        return visible(resource["text"], one_line=False)
    mime_type = visible(_mime_type(block))
    if not isinstance(_encoded(block), str):
        return f"[{visible(block.type)} {visible(block.uri or '')}]".replace(" ]", "]")
    data = _file_of(block)
    if data is None:
        return f"[{visible(block.type)}, {mime_type}: not valid base64]"
    if path is None:
        return f"[{visible(block.type)}, {mime_type}, {len(data):,} bytes; --save DIR writes it to a file]"
    return f"[{visible(block.type)}, {mime_type}, {len(data):,} bytes] saved as {visible(str(path))}"
