"""TensorBoard event files, written with TensorBoard's own messages, without TensorFlow and without torch."""

from __future__ import annotations

import time
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from safelight.files import DISK, MAX_PICTURE_BYTES, Disk, create_file, make_directories, read_plain
from safelight.record.fact_encoding import encode
from safelight.record.sinks.batch import SinkBatch, rows_of
from safelight.record.sinks.checksum import frame

CHANNELS = {0: 1, 2: 3, 3: 3, 4: 2, 6: 4}  # by the colour type of a PNG
SIGNATURE = b"\x89PNG\r\n\x1a\n"


class TensorBoard:
    """RUN/tensorboard. Each start writes a file of its own, which makes readers drop steps that are trained again."""

    def __init__(self, folder: Path, *, config: dict[str, Any], from_step: int) -> None:
        # Its own EventFileWriter is not used: a full disk kills that one's thread, with a traceback on the terminal.
        self._events, self._summaries, self._tensors, self._types = (
            import_module(f"tensorboard.compat.proto.{name}_pb2") for name in ("event", "summary", "tensor", "types")
        )
        self._file = create_file(new_file(folder / "tensorboard", disk := Disk(folder)), disk)
        session = self._events.SessionLog
        self._add(0, file_version="brain.Event:2")
        self._add(from_step, session_log=session(status=session.START))
        self._add(from_step, summary=self._summary(self._text("config", encode(config))))
        self._file.flush()

    def write(self, batch: SinkBatch) -> None:
        value = self._summaries.Summary.Value
        for step, row in rows_of(batch).items():
            self._add(step, summary=self._summary(*(value(tag=name, simple_value=n) for name, n in row.items())))
        for step, name, counts, edges in batch.histograms:
            self._add(step, summary=self._summary(value(tag=name, histo=self._histogram(counts, edges))))
        for step, kind, path in batch.pictures:
            self._add(
                step,
                summary=self._summary(
                    value(tag=f"picture/{kind}", image=self._image(read_plain(path, MAX_PICTURE_BYTES)))
                ),
            )
        for step, kind, facts in batch.events:
            self._add(step, summary=self._summary(self._text(f"event/{kind}", encode(facts))))
        self._file.flush()

    def close(self) -> None:
        self._file.close()

    def _add(self, step: int, **what: Any) -> None:
        event = self._events.Event(wall_time=time.time(), step=step, **what)
        self._file.write(frame(event.SerializeToString()))

    def _summary(self, *values: Any) -> Any:
        return self._summaries.Summary(value=values)

    def _image(self, png: bytes) -> Any:
        if not png.startswith(SIGNATURE):
            raise ValueError(f"a picture must be a PNG, but it starts with {png[:8]!r}")
        width, height = (int.from_bytes(png[at : at + 4], "big") for at in (16, 20))
        return self._summaries.Summary.Image(
            width=width, height=height, colorspace=CHANNELS[png[25]], encoded_image_string=png
        )

    def _histogram(self, counts: Any, edges: Any) -> Any:
        """Sums are taken from the middles of the bins: the numbers themselves are gone."""
        counts, edges = np.asarray(counts, dtype=np.float64), np.asarray(edges, dtype=np.float64)
        middles = (edges[:-1] + edges[1:]) / 2
        return self._summaries.HistogramProto(
            min=edges[0],
            max=edges[-1],
            num=counts.sum(),
            sum=counts @ middles,
            sum_squares=counts @ middles**2,
            bucket_limit=edges[1:].tolist(),
            bucket=counts.tolist(),
        )

    def _text(self, tag: str, text: str) -> Any:
        metadata = self._summaries.SummaryMetadata
        tensor = self._tensors.TensorProto(dtype=self._types.DT_STRING, string_val=[text.encode()])
        tensor.tensor_shape.dim.add(size=1)
        plugin = metadata.PluginData(plugin_name="text")
        return self._summaries.Summary.Value(tag=tag, tensor=tensor, metadata=metadata(plugin_data=plugin))


def new_file(folder: Path, disk: Disk = DISK) -> Path:
    """A name that sorts after all others there: readers go by names, and a clock may stand still or run behind."""
    make_directories(folder, disk)
    stamps = [
        int(stamp) for path in folder.glob("events.out.tfevents.*") if (stamp := path.name.split(".")[3]).isdigit()
    ]
    stamp = max([int(time.time()), *(old + 1 for old in stamps)])
    return folder / f"events.out.tfevents.{stamp:010d}.safelight"
