"""Frame buffers, their views, and results that lend and copy them."""

from __future__ import annotations

import gc
import threading
import tracemalloc

import cv2
import numpy as np
import numpy.typing as npt
import pytest

from pipeline.contracts import FrameMapping
from pipeline.errors import ClosedError
from pipeline.memory.frame import Frame, FrameFormat, FramePool
from pipeline.memory.i420 import Matrix
from pipeline.memory.results import Detections, Holders, RawOutput, Result, Stamps

FORMAT = FrameFormat(4, 3)
STAMPS = Stamps(100, 110, 120, 130, 140, 150, 160, 170, 2_000_100)


def take(pool: FramePool) -> Frame:
    frame = pool.try_acquire()
    assert frame is not None
    return frame


# --- the pool


def test_a_pool_lends_each_buffer_once() -> None:
    pool = FramePool(FORMAT, 3)
    frames = [take(pool) for _ in range(3)]
    assert pool.try_acquire() is None
    assert {frame.index for frame in frames} == {0, 1, 2}
    assert len({frame.image.ctypes.data for frame in frames}) == 3
    assert (len(pool), pool.free, pool.nbytes) == (3, 0, 3 * 36)
    assert frames[0].image.shape == (3, 4, 3)
    frames[1].release()
    assert take(pool) is frames[1]


def test_the_last_holder_returns_the_buffer() -> None:
    freed: list[int] = []
    pool = FramePool(FORMAT, 1, on_free=lambda: freed.append(pool.free))
    frame = take(pool)
    frame.retain()
    frame.release()
    assert (pool.free, freed) == (0, [])
    frame.release()
    assert (pool.free, freed) == (1, [1])
    with pytest.raises(RuntimeError, match="frame buffer 0: released more often than held"):
        frame.release()
    assert (pool.free, freed) == (1, [1])


def test_a_view_keeps_the_buffer_after_the_last_holder() -> None:
    freed: list[None] = []
    pool = FramePool(FORMAT, 1, on_free=lambda: freed.append(None))
    frame = take(pool)
    view = frame.view()
    frame.release()
    assert pool.try_acquire() is None
    del view
    assert pool.free == 1
    assert len(freed) == 1


def test_a_slice_of_a_view_keeps_the_buffer_too() -> None:
    pool = FramePool(FORMAT, 1)
    frame = take(pool)
    frame.image[:] = 5
    slices = [frame.view()[1:, :, 0], frame.view()[::-1], frame.view().reshape(-1)]
    frame.release()
    for _ in range(3):
        assert pool.free == 0
        assert (slices[-1] == 5).all()
        slices.pop()
    assert pool.free == 1


def test_a_view_in_a_cycle_comes_back_with_the_collector() -> None:
    pool = FramePool(FORMAT, 1)
    frame = take(pool)
    cycle: list[object] = [frame.view()]
    cycle.append(cycle)
    frame.release()
    del cycle
    gc.collect()
    assert pool.free == 1


def test_a_view_is_read_only_and_shares_the_memory() -> None:
    frame = take(FramePool(FORMAT, 1))
    view = frame.view()
    assert view.ctypes.data == frame.image.ctypes.data
    with pytest.raises(ValueError, match="read-only"):
        view[0, 0, 0] = 1
    frame.image[0, 0, 0] = 9
    assert view[0, 0, 0] == 9


def test_a_view_that_dies_before_the_holder_returns_nothing() -> None:
    pool = FramePool(FORMAT, 1)
    frame = take(pool)
    frame.view()
    assert pool.free == 0
    frame.release()
    assert pool.free == 1


def test_a_pool_survives_many_threads() -> None:
    pool = FramePool(FORMAT, 3)
    wrong: list[str] = []
    start = threading.Barrier(6)

    def work(me: int) -> None:
        start.wait(20)
        for _ in range(400):
            frame = pool.try_acquire()
            if frame is None:
                continue
            frame.image[:] = me
            view = frame.view()
            frame.release()
            if not (view == me).all():
                wrong.append("written while viewed")
            del view

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert wrong == []
    assert pool.free == 3


# --- frames of planes

PLANES = FrameFormat(64, 48, pixels="i420")


def grey(frame: Frame, level: int) -> None:
    """Fill a frame of planes: limited-range grey, without color."""
    frame.pixels[:48] = level
    frame.pixels[48:] = 128


def test_formats_tell_the_shape_of_buffers_and_what_shares_them() -> None:
    assert FORMAT.shape == (3, 4, 3)
    assert PLANES.shape == (72, 64)
    assert PLANES.fits(PLANES._replace(fps=25, frames=9))
    for other in ({"width": 66}, {"pixels": "bgr"}, {"matrix": "709"}, {"full_range": True}):
        assert not PLANES.fits(PLANES._replace(**other))


def test_a_frame_of_planes_shows_bgr_made_once() -> None:
    pool = FramePool(PLANES, 2)
    frame = take(pool)
    assert frame.pixels.shape == (72, 64)
    grey(frame, 235)
    view = frame.view()
    assert view.shape == (48, 64, 3)
    assert (view == 255).all()
    grey(frame, 16)
    assert frame.image.ctypes.data == frame.view().ctypes.data == view.ctypes.data
    assert (view == 255).all()  # not converted again
    with pytest.raises(ValueError, match="read-only"):
        view[0] = 0
    frame.release()
    assert pool.free == 1
    del view
    assert pool.free == 2
    assert (take(pool).image == 0).all()  # another frame now


def test_images_are_made_where_they_are_asked_for_and_used_again() -> None:
    pool = FramePool(PLANES, 3)
    buffers = pool.nbytes
    assert buffers == 3 * 72 * 64
    places = set()
    for _ in range(9):
        frames = [take(pool) for _ in range(3)]
        for frame in frames[:2]:
            places.add(frame.image.ctypes.data)
        for frame in frames:
            frame.release()
    assert len(places) == 2
    assert pool.nbytes == buffers + 2 * 48 * 64 * 3


@pytest.mark.parametrize("matrix", ["601", "709"])
def test_a_image_for_every_frame_costs_no_memory(matrix: Matrix) -> None:
    pool = FramePool(PLANES._replace(width=640, height=480, matrix=matrix), 2)

    def show() -> None:
        frame = take(pool)
        frame.view()
        frame.release()

    show()
    tracemalloc.start()
    try:
        for _ in range(5):
            show()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4096


def test_a_conversion_that_fails_leaves_no_view_behind() -> None:
    pool = FramePool(PLANES, 1)
    frame = take(pool)
    frame.pixels = np.zeros((3, 3), np.uint8)
    with pytest.raises(cv2.error):
        frame.view()
    frame.release()
    assert pool.free == 1


def test_threads_share_one_image_of_each_frame() -> None:
    pool = FramePool(PLANES, 2)
    start = threading.Barrier(4)
    seen: list[list[tuple[int, int]]] = [[] for _ in range(100)]
    frames: list[Frame] = []

    def work() -> None:
        for turn in range(100):
            if start.wait(20) == 0:
                frames[:] = [take(pool)]
                grey(frames[0], 16 + turn)
            start.wait(20)
            view = frames[0].view()
            seen[turn].append((view.ctypes.data, int(view[20, 30, 1])))
            del view
            if start.wait(20) == 0:
                frames.pop().release()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert pool.free == 2
    for turn, found in enumerate(seen):
        assert len(found) == 4
        assert len(set(found)) == 1
        assert abs(found[0][1] - turn * 255 / 219) <= 1


# --- leases and results


def result_of(
    frame: Frame | None, output: npt.NDArray[np.float32] | None, lease: Holders | None
) -> Result:
    return Result(
        "front",
        7,
        STAMPS,
        Detections.empty(),
        FrameMapping(1, 1, 0, 0, 64, 48),
        (lambda: frame.view()) if frame is not None else (lambda: np.zeros((1, 1, 3), np.uint8)),
        (lambda: (RawOutput("scores", output),)) if output is not None else (lambda: ()),
        lease,
    )


def test_a_lease_gives_back_once() -> None:
    given: list[None] = []
    lease = Holders(lambda: given.append(None))
    lease.retain()
    lease.release()
    assert lease.held
    assert given == []
    lease.release()
    assert not lease.held
    assert given == [None]
    for call in (lease.release, lease.retain):
        with pytest.raises(ClosedError, match="released"):
            call()
    assert given == [None]


def test_a_result_is_refused_after_its_lease() -> None:
    frame = take(FramePool(FORMAT, 1))
    result = result_of(frame, np.ones(3, np.float32), Holders(frame.release))
    assert result.image.shape == (3, 4, 3)
    assert result.outputs[0].name == "scores"
    result.release()
    for name in ("image", "outputs"):
        with pytest.raises(ClosedError, match=r"result 7 of camera 'front'.*result\.copy\(\)"):
            getattr(result, name)
    with pytest.raises(ClosedError):
        result.copy()
    assert len(result.detections) == 0
    assert result.captured_ns == 100


def test_retain_keeps_a_result() -> None:
    pool = FramePool(FORMAT, 1)
    frame = take(pool)
    result = result_of(frame, None, Holders(frame.release))
    result.retain()
    result.release()
    assert result.image.shape == (3, 4, 3)
    result.release()
    assert pool.free == 1


def test_a_copy_owns_everything() -> None:
    pool = FramePool(FORMAT, 1)
    frame = take(pool)
    frame.image[:] = 3
    output = np.ones(3, np.float32)
    result = result_of(frame, output, Holders(frame.release))
    kept = result.copy()
    result.release()
    assert pool.free == 1
    frame.image[:] = 4
    output[:] = 2
    assert (kept.image == 3).all()
    assert (kept.outputs[0].array == 1).all()
    for array in (kept.image, kept.outputs[0].array):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
    kept.release()  # nothing is borrowed, so this is harmless
    assert kept.copy().sequence == 7
    assert (kept.camera, kept.stamps) == ("front", STAMPS)


def test_an_image_that_outlives_its_result_keeps_the_buffer() -> None:
    pool = FramePool(FORMAT, 1)
    frame = take(pool)
    result = result_of(frame, None, Holders(frame.release))
    image = result.image
    result.release()
    assert pool.free == 0
    del image
    assert pool.free == 1


# --- detections and mapping


def test_detections_iterate_with_labels() -> None:
    detections = Detections(
        np.array([(0, 0, 1, 1), (1, 1, 2, 2), (2, 2, 3, 3)], np.float32),
        np.array([0.9, 0.8, 0.7], np.float32),
        np.array([1, 0, 5], np.int32),
        np.zeros((3, 2, 2), np.float32),
        ("cat", "dog"),
    )
    assert [d.label for d in detections] == ["dog", "cat", "5"]
    assert [round(d.score, 3) for d in detections] == [0.9, 0.8, 0.7]
    assert len(detections) == 3
    with pytest.raises(ValueError, match="read-only"):
        next(iter(detections)).box[0] = 1
    assert Detections.empty(landmarks=5).landmarks.shape == (0, 5, 2)


def test_stamps_tell_the_age() -> None:
    assert STAMPS.latency_ns == 2_000_000


def test_mapping_clips_to_the_frame_and_takes_any_number_of_points() -> None:
    mapping = FrameMapping(2, 4, 10, 20, 100, 50)
    points = np.array([[(10, 20), (110, 60)], [(-50, 0), (900, 900)]], np.float32)
    back = mapping.to_frame(points)
    np.testing.assert_array_equal(back, [[(0, 0), (50, 10)], [(0, 0), (100, 50)]])
    assert back.dtype == np.float32
    assert mapping.to_frame(np.empty((0, 5, 2), np.float32)).shape == (0, 5, 2)
