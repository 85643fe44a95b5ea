"""Placing a frame in the model's input: letterbox, stretch or centre crop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

from pipeline.contracts import FrameMapping
from pipeline.errors import ConfigError, PipelineError
from pipeline.memory.frame import FrameFormat, Image
from pipeline.memory.i420 import Order
from pipeline.memory.ring import ResizeStep
from pipeline.preprocess.resize import Area, Interpolation, NativeResizer, Resizer, native_resizer

if TYPE_CHECKING:
    from pipeline import _native
    from pipeline._native import TensorSpec

__all__ = ["PreprocessSettings", "Preprocessor", "make_resizer"]


def _not_zero(value: float) -> float:
    if value == 0:
        raise PydanticCustomError("zero", "needed another number than 0 to divide by")
    return value


_Finite = Annotated[float, Field(allow_inf_nan=False)]
_Divisor = Annotated[_Finite, AfterValidator(_not_zero)]


class PreprocessSettings(BaseModel):
    """Conversion of a frame to the model's input; mean and scale run inside the engine."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    resize: Literal["letterbox", "stretch", "crop"] = Field(
        default="letterbox",
        description="letterbox keeps the aspect and pads, stretch fills the input, crop keeps "
        "the aspect and cuts the frame's longer side around its centre.",
    )
    color: Literal["rgb", "bgr"] = Field(
        default="rgb", description="Color order that the model was trained with."
    )
    mean: tuple[_Finite, ...] = Field(
        default=(),
        max_length=4,
        description="Subtracted from each channel, on the scale 0..255, in the model's color "
        "order: none, one value, or one for each channel.",
    )
    scale: tuple[_Divisor, ...] = Field(
        default=(),
        max_length=4,
        description="Each channel is divided by it after the mean was subtracted: none, one "
        "value, or one for each channel.",
    )
    pad: int = Field(
        default=114, ge=0, le=255, description="Value of the padding that letterbox adds, 0..255."
    )
    interpolation: Interpolation = Field(
        default="linear",
        description="Resampling: linear is fast, area is best when shrinking much, nearest "
        "keeps values.",
    )


class _Geometry(NamedTuple):
    """Part of the frame, and its place in the input; slices of rows and columns."""

    source: tuple[slice, slice]
    target: tuple[slice, slice]
    mapping: FrameMapping


class Preprocessor:
    """Resizes frames straight into input views, implementing ``Preprocess``.

    An input is uint8 (1, H, W, 3) or, for grey models, (1, H, W, 1); rows may be further
    apart than they are long. Mean and scale are the engine's work, and so is the color order
    unless ``swap_colors``; the input gets BGR, also from frames of planes. Padding is written
    once for each slot. Where OpenCV cannot write into the view (values within a row are apart)
    or would not, the image is made beside it and copied; ``copies`` counts that.
    """

    def __init__(self, settings: PreprocessSettings, *, swap_colors: bool = False) -> None:
        self._settings = settings
        self._swap = swap_colors
        self._geometry: _Geometry | None = None
        self._resizer: Resizer | None = None
        self._native: _native.Resizer | None = None
        self._frame_shape: tuple[int, ...] = (0, 0, 3)
        self._shape = (1, 0, 0, 3)
        self._padded: set[int] = set()
        self._beside: npt.NDArray[np.uint8] | None = None
        self.copies = 0

    def open(self, frame_format: FrameFormat, spec: TensorSpec) -> None:
        """Fix the placement; ConfigError when the tensor is no uint8 NHWC image.

        Of a batch, ``process`` is given one image at a time.
        """
        height, width, channels = _image_size(spec)
        for name in ("mean", "scale"):
            given = len(getattr(self._settings, name))
            if given not in (0, 1, channels):
                raise ConfigError(
                    f"input {spec.name!r} needs 1 or {channels} values, got {given}", (name,)
                )
        self._geometry = _geometry_of(self._settings.resize, frame_format, width, height)
        self._frame_shape = frame_format.shape
        self._shape = (1, height, width, channels)
        self._padded = set()
        self._beside = None
        rows, columns = self._geometry.target
        area = Area(*self._geometry.source, columns.stop - columns.start, rows.stop - rows.start)
        order: Order = "grey" if channels == 1 else "rgb" if self._swap else "bgr"
        self._resizer = make_resizer(frame_format, area, order, self._settings.interpolation)
        native = self._resizer.native if isinstance(self._resizer, NativeResizer) else None
        dense = spec.shape[0] == 1 and tuple(spec.strides[2:]) == (3, 1)
        self._native = native if dense else None

    @property
    def mapping(self) -> FrameMapping:
        """The placement fixed by ``open``."""
        return self._opened().mapping

    def forget(self, slot_index: int) -> None:
        """Forget that this slot's padding was written; another camera has used it."""
        self._padded.discard(slot_index)

    def process(self, pixels: Image, target: npt.NDArray[Any], slot_index: int) -> None:
        """Fill ``target``, the input view of slot ``slot_index``, from a frame's ``pixels``.

        PipelineError when either has not the shape given to ``open``.
        """
        placement = self._opened()
        if pixels.shape != self._frame_shape or target.shape != self._shape:
            raise PipelineError(
                f"preprocess: needed a frame {self._frame_shape} and an input {self._shape}, "
                f"got {pixels.shape} and {target.shape}"
            )
        if slot_index not in self._padded:
            target.fill(self._settings.pad)
            self._padded.add(slot_index)
        inner = target[0, ..., 0] if self._shape[3] == 1 else target[0]
        self._resize(pixels, inner[placement.target])

    def resize_step(self, slot_index: int) -> ResizeStep | None:
        """Native equivalent of ``process``, which the caller then must run."""
        if self._native is None:
            return None
        rows, columns = self._opened().target
        pad = None if slot_index in self._padded else self._settings.pad
        self._padded.add(slot_index)
        return ResizeStep(self._native, rows.start, columns.start, pad)

    def _opened(self) -> _Geometry:
        if self._geometry is None:
            raise PipelineError("preprocess: not open")
        return self._geometry

    def _resize(self, pixels: Image, inner: npt.NDArray[np.uint8]) -> None:
        assert self._resizer is not None
        # OpenCV takes any distance between rows, but none within a row.
        dense = inner.strides[1:] == ((1,) if inner.ndim == 2 else (inner.shape[2], 1))
        if not dense and self._beside is None:
            self._beside = np.empty(inner.shape, np.uint8)
        into = inner if dense or self._beside is None else self._beside
        made = self._resizer.resize(pixels, into)
        if made is not inner and made.ctypes.data != inner.ctypes.data:
            np.copyto(inner, made)
            self.copies += 1


def make_resizer(
    form: FrameFormat, area: Area, order: Order, interpolation: Interpolation
) -> Resizer:
    """A resizer to images (height, width, 3), or (height, width) where ``order`` is grey."""
    if order != "grey" and interpolation == "linear":
        return native_resizer(form, area, order)
    # OpenCV is tens of megabytes, so only where it resizes.
    from pipeline.preprocess.resize_opencv import make_opencv_resizer

    return make_opencv_resizer(form, area, order, interpolation)


def _image_size(spec: TensorSpec) -> tuple[int, int, int]:
    shape = tuple(spec.shape)
    told = (
        f"input {spec.name!r} is {np.dtype(spec.dtype).name} {list(shape)} {spec.layout}".rstrip()
    )
    if np.dtype(spec.dtype) != np.uint8:
        raise ConfigError(
            f"preprocess: {told}; an image needs uint8, the engine has to convert it in its graph"
        )
    if len(shape) != 4 or shape[3] not in (1, 3) or spec.layout not in ("NHWC", ""):
        raise ConfigError(f"preprocess: {told}; an image needs [1, height, width, 3 or 1] NHWC")
    if min(shape) < 1:
        raise ConfigError(f"preprocess: {told}; every size has to be known")
    return shape[1], shape[2], shape[3]


def _geometry_of(resize: str, frame: FrameFormat, width: int, height: int) -> _Geometry:
    """Letterbox, stretch or crop of a frame into an input of ``width`` x ``height`` pixels."""
    x0, y0, taken_width, taken_height = 0, 0, frame.width, frame.height  # of the frame
    left, top, new_width, new_height = 0, 0, width, height  # of the input
    across, down = width / frame.width, height / frame.height
    step = 2 if frame.pixels == "i420" else 1  # half a chroma sample cannot be taken
    if resize == "letterbox":
        scale = min(across, down)
        new_width = min(width, max(1, round(frame.width * scale)))
        new_height = min(height, max(1, round(frame.height * scale)))
        left, top = (width - new_width) // 2, (height - new_height) // 2
    elif resize == "crop":
        scale = max(across, down)
        x0, taken_width = _middle(frame.width, width / scale, step)
        y0, taken_height = _middle(frame.height, height / scale, step)
    # From the sizes as rounded, so that points map back exactly.
    scale_x, scale_y = new_width / taken_width, new_height / taken_height
    return _Geometry(
        (slice(y0, y0 + taken_height), slice(x0, x0 + taken_width)),
        (slice(top, top + new_height), slice(left, left + new_width)),
        FrameMapping(
            scale_x, scale_y, left - x0 * scale_x, top - y0 * scale_y, frame.width, frame.height
        ),
    )


def _middle(whole: int, wanted: float, step: int) -> tuple[int, int]:
    """Start and length of the middle part of a side, multiples of ``step`` as the side is."""
    taken = min(whole, step * max(1, round(wanted / step)))
    return (whole - taken) // 2 // step * step, taken
