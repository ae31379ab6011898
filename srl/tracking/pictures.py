"""Films as moving pictures."""

from __future__ import annotations

import subprocess
from pathlib import Path

from srl.core.errors import RunError

_SHOWN = ("-t", "20", "-vf", "fps=10,scale=w='min(320,iw)':h=-2")  # at most 200 small frames


def gif(film: Path) -> tuple[bytes, int, int]:
    """The first 20 seconds of a film as a GIF, with its height and width in pixels.

    It has ten frames a second and is at most 320 pixels wide, so a few megabytes large.

    Raises:
        RunError: If the film cannot be read.
    """
    import imageio_ffmpeg

    program = imageio_ffmpeg.get_ffmpeg_exe()
    command = [program, "-v", "error", "-i", str(film), *_SHOWN, "-f", "gif", "-"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if done.returncode:
        raise RunError(f"{film} cannot be read: {done.stderr.decode(errors='replace')}")
    picture = done.stdout
    width, height = (int.from_bytes(picture[at : at + 2], "little") for at in (6, 8))
    return picture, height, width
