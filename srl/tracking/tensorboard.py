"""TensorBoard events in the run's folder."""

from __future__ import annotations

import platform
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from srl.core.errors import RunError
from srl.tracking.tracker import Histogram, Started, TrackedRun, tag

_FLUSH_SECONDS = 1.0
_SHOWN = ("-t", "20", "-vf", "fps=10,scale=w='min(320,iw)':h=-2")  # at most 200 small frames


class TensorBoard:
    """Writes events files, a new one after each resume and after each error."""

    def __init__(self) -> None:
        self._writer: Any = None  # until the next event
        self._flushed = 0.0

    def start(self, run: TrackedRun) -> Started:
        """Begins a file; what older ones hold after the step of a resume is then forgotten."""
        from tensorboardX.proto import event_pb2

        self._proto: Any = event_pb2
        self._folder = run.folder
        self._open()
        if run.resumed_at is not None:
            begin = self._proto.SessionLog(status=self._proto.SessionLog.START)
            self._write(step=run.resumed_at + 1, session_log=begin)
        return Started()

    def metrics(self, values: Mapping[str, float], env_steps: int) -> None:
        """Adds scalars, with CleanRL's tags."""
        event = self._proto.Event(step=env_steps)
        for name, value in values.items():
            event.summary.value.add(tag=tag(name), simple_value=value)
        self._add(event)

    def histogram(self, name: str, histogram: Histogram, env_steps: int) -> None:
        """Adds a histogram."""
        counts, edges = histogram
        event = self._proto.Event(step=env_steps)
        histo = event.summary.value.add(tag=name).histo
        middle = (edges[1:] + edges[:-1]) / 2
        histo.min, histo.max, histo.num = edges[0], edges[-1], counts.sum()
        histo.sum, histo.sum_squares = counts @ middle, counts @ middle**2
        histo.bucket_limit.extend(edges[1:])
        histo.bucket.extend(counts)
        self._add(event)

    def video(self, file: Path, env_steps: int) -> None:
        """Adds a film as a moving picture, the only kind of film that TensorBoard shows."""
        picture, height, width = _gif(file)
        event = self._proto.Event(step=env_steps)
        image = event.summary.value.add(tag="videos").image
        image.height, image.width, image.colorspace = height, width, 3
        image.encoded_image_string = picture
        self._add(event)

    def end(self, code: int) -> None:
        """Closes the file."""
        if self._writer is not None:
            self._writer.close()

    def _open(self) -> Any:
        from tensorboardX.record_writer import RecordWriter

        part = len(list(self._folder.glob("events.*")))  # two parts may begin within a second
        name = f"events.out.tfevents.{time.time():.0f}.{platform.node()}.{part}"
        self._writer = writer = RecordWriter(str(self._folder / name))
        self._write(file_version="brain.Event:2")
        return writer

    def _write(self, **fields: Any) -> None:
        self._add(self._proto.Event(**fields))

    def _add(self, event: Any) -> None:
        now = time.time()
        event.wall_time = now
        writer = self._writer or self._open()
        try:
            writer.write(event.SerializeToString())
            if now > self._flushed + _FLUSH_SECONDS:
                self._flushed = now
                writer.flush()
        except OSError:
            self._writer = None  # the file may end in a torn event, after which none is read
            raise


def _gif(film: Path) -> tuple[bytes, int, int]:
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
