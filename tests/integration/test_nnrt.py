"""Engine nnrt on the stand-ins for its library, through the command line and the program's face."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline import DeviceError, Executor, ImageInput, Ring, RunError
from pipeline.engines.awaitable_context import AwaitableContext
from pipeline.sources.synthetic import synthetic_frame
from tests import nnrt_standin
from tests.nnrt_standin import StandInTensor
from tests.standins import NoCompilerError

ROOT = Path(__file__).parents[2]
Ended = subprocess.CompletedProcess[str]
pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("pipeline._native") is None, reason="the native module is not built"
)

WIDTH, HEIGHT = 32, 24
IMAGE = StandInTensor("image", "uint8", (1, HEIGHT, WIDTH, 3), "NHWC")
TOTAL = StandInTensor("total", "int32", (1, 1))
ROWS = StandInTensor("rows", "float32", (1, 3))
OUTPUTS = (TOTAL, ROWS)


@dataclass
class Setup:
    """A stand-in, a model for it, and a folder to run the command line in."""

    version: str
    folder: Path
    env: dict[str, str] = field(default_factory=dict)

    @property
    def library(self) -> str:
        return str(nnrt_standin.library(self.version))

    def write(self, inputs: tuple[StandInTensor, ...], outputs: tuple[StandInTensor, ...]) -> Path:
        return nnrt_standin.write_model(self.folder / "model.om", inputs, outputs)

    def config(self, frames: int = 20, **model: Any) -> dict[str, Any]:
        options = nnrt_standin.options(self.version, [IMAGE], OUTPUTS)
        return {
            "source": {"uri": "synthetic:", "width": WIDTH, "height": HEIGHT, "frames": frames},
            "model": {
                "path": str(self.folder / "model.om"),
                "engine": "nnrt",
                "device": "NPU",
                "library": self.library,
                "contexts": 2,
                **model,
                "options": {**options, **model.get("options", {})},
            },
            "ring": {"depth": 4},
            "preprocess": {"resize": "stretch", "color": "bgr"},
            "sinks": [{"kind": "jsonl", "path": str(self.folder / "out.jsonl"), "digest": True}],
        }

    def run(
        self, config: dict[str, Any] | Path, *arguments: str
    ) -> subprocess.CompletedProcess[str]:
        path = config if isinstance(config, Path) else self.folder / "camera.yaml"
        if isinstance(config, dict):
            path.write_text(json.dumps(config))  # which is YAML as well
        paths = filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")])
        summary = str(self.folder / "summary.json")
        return subprocess.run(
            [sys.executable, "-m", "pipeline", str(path), "--summary", summary, *arguments],
            cwd=self.folder,
            env={**os.environ, **self.env, "PYTHONPATH": os.pathsep.join(paths)},
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / "out.jsonl").read_text().splitlines()]

    def summary(self) -> dict[str, Any]:
        told: dict[str, Any] = json.loads((self.folder / "summary.json").read_text())
        return told

    def open(self, **settings: Any) -> AwaitableContext[Executor]:
        settings.setdefault("options", nnrt_standin.options(self.version, [IMAGE], OUTPUTS))
        settings.setdefault("device", "NPU")
        return Executor.open(
            self.folder / "model.om", engine="nnrt", library=self.library, **settings
        )


@pytest.fixture(params=["v1", "v2"])
def setup(request: pytest.FixtureRequest, tmp_path: Path) -> Setup:
    try:
        nnrt_standin.library(request.param)
    except NoCompilerError as error:
        pytest.skip(str(error))
    made = Setup(request.param, tmp_path)
    made.write((IMAGE,), OUTPUTS)
    return made


@pytest.fixture
def only_v2(setup: Setup) -> Setup:
    if setup.version == "v1":
        pytest.skip("needs the calls of API 11")
    return setup


def failed(ended: Ended, code: int, *parts: str) -> None:
    """One clear line that names the place, and the exit code."""
    assert ended.returncode == code, ended.stderr
    assert "Traceback" not in ended.stderr
    errors = [line for line in ended.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, ended.stderr
    for part in parts:
        assert part in errors[0]


def digest(array: Any) -> str:
    """Of every element, as the sink tells it."""
    return hashlib.sha256(np.ascontiguousarray(array).data).hexdigest()


def test_20000_frames_in_order_equal_to_numpy(setup: Setup) -> None:
    frames = 20_000
    setup.env["STANDIN_NNRT_STATS"] = str(setup.folder / "driver.json")
    ended = setup.run(setup.config(frames), "--quiet")
    assert (ended.returncode, ended.stderr) == (0, "")
    lines = setup.lines()
    assert [line["sequence"] for line in lines] == list(range(frames))
    for line in lines:
        image = synthetic_frame(line["sequence"], WIDTH, HEIGHT)
        for index, (output, given) in enumerate(zip(OUTPUTS, line["outputs"], strict=True)):
            wanted = nnrt_standin.expected([image], output, index)
            assert given["name"] == output.name
            assert (given["shape"], given["dtype"]) == (list(output.shape), output.dtype)
            assert given["sha256"] == digest(wanted), line["sequence"]
    summary = setup.summary()
    assert summary["driver_allocations"] == {"at_start": 12, "at_end": 12}
    assert set(summary["zero_copy"].values()) == {"zero-copy"}
    assert summary["device"] == "stand-in NPU (accelerator)"
    driver = json.loads((setup.folder / "driver.json").read_text())
    assert (driver["allocations"], driver["frees"]) == (12, 12)
    assert driver["runs"] == frames + 4  # each slot was probed
    alive = ("live_blocks", "live_executors", "live_compilations", "live_descriptions")
    for name in (*alive, "leaked_blocks", "largest_waste", "misuses"):
        assert driver[name] == 0, name


# Mistakes and failures, as a user sees them.


@pytest.mark.parametrize(
    ("switch", "value", "parts"),
    [
        ("DEVICES", "none", ("model.device: device 'NPU' is absent", "finds here: none")),
        ("REFUSE_OFFLINE", "1", ("model.path: ", "refuses this model file: OH_NN_FAILED (1)")),
        ("REFUSE_EXECUTOR", "1", ("model.path: ", "cannot make an executor")),
        ("REFUSE_ALLOCATION", "2", ("output 0 'total': ", "'stand-in NPU' refused 4 bytes")),
        ("SILENT_OUTPUT", "1", ("output 1 'rows': the engine did not write",)),
    ],
)
def test_what_the_device_refuses(
    setup: Setup, switch: str, value: str, parts: tuple[str, ...]
) -> None:
    setup.env[f"STANDIN_NNRT_{switch}"] = value
    setup.env["STANDIN_NNRT_STATS"] = str(setup.folder / "driver.json")
    failed(setup.run(setup.config()), 4, *parts)
    driver = json.loads((setup.folder / "driver.json").read_text())
    for name in ("live_blocks", "live_executors", "leaked_blocks", "misuses"):
        assert driver[name] == 0, name


@pytest.mark.parametrize(
    ("switch", "reason"),
    [
        ("FAIL_RUNS", "failed to run the model: OH_NN_FAILED (1)"),
        ("DIE_RUNS", "the NNRT service died, OH_NN_CONNECTION_EXCEPTION (11)"),
        ("LOSE_RUNS", "was lost, OH_NN_UNAVAILABLE_DEVICE (14)"),
    ],
)
def test_a_failed_run_costs_its_frames_only(setup: Setup, switch: str, reason: str) -> None:
    setup.env[f"STANDIN_NNRT_{switch}"] = "9"
    setup.env["STANDIN_NNRT_STATS"] = str(setup.folder / "driver.json")
    ended = setup.run(setup.config(frames=50))
    assert ended.returncode == 0, ended.stderr
    assert reason in ended.stderr
    summary = setup.summary()
    # Each loss of the device takes those with it that were in the ring, and nothing else.
    lost = summary["engine_reopened"]
    assert (lost == 0) == (switch == "FAIL_RUNS")
    assert lost == summary["events"].get("engine", {}).get("failed", 0)
    assert 1 <= summary["dropped"]["failed"] <= max(1, 4 * lost), ended.stderr
    assert summary["results"] == 50 - summary["dropped"]["failed"]
    driver = json.loads((setup.folder / "driver.json").read_text())
    for name in ("live_blocks", "live_executors", "leaked_blocks", "misuses"):
        assert driver[name] == 0, name


@pytest.mark.parametrize(
    ("model", "code", "parts"),
    [
        ({"device": "gpu"}, 4, ("model.device: device 'gpu' is absent", "7 stand-in CPU (cpu)")),
        ({"library": "./libnone.so"}, 4, ("model.library: ", "libnone.so: no such library")),
        ({"library": "libm.so.6"}, 4, ("libm.so.6: the library has no OH_NNDevice_",)),
        ({"library": None}, 4, ("NNRT is not installed", "model.library")),
        ({"path": None}, 2, ("model.path: missing",)),
        ({"options": {"cahce_dir": "x"}}, 2, ("cahce_dir: engine nnrt has no such option",)),
        ({"options": {"performance": "warp"}}, 2, ("model.options.performance: ",)),
        ({"path": None, "options": {"cache_dir": "gone"}}, 4,
         ("model.options.cache_dir: ", "gone: no such file")),
        ({"options": {"outputs": [{"name": "a", "shape": [1, 1], "dtype": "text9"}]}}, 2,
         ("options.outputs: 'a': dtype 'text9' is unknown",)),
    ],
)  # fmt: skip
def test_what_the_configuration_has_wrong(
    setup: Setup, model: dict[str, Any], code: int, parts: tuple[str, ...]
) -> None:
    config = setup.config(**model)
    config["model"] = {key: value for key, value in config["model"].items() if value is not None}
    failed(setup.run(config), code, *parts)


def test_a_file_that_is_no_model(setup: Setup) -> None:
    (setup.folder / "model.om").write_bytes(bytes(range(256)))
    failed(setup.run(setup.config()), 4, "model.path: ", "model.om", "OH_NN_INVALID_FILE (6)")


def test_tensors_have_to_be_declared_where_nothing_tells_them(setup: Setup) -> None:
    config = setup.config()
    config["model"]["options"] = {}
    ended = setup.run(config)
    if setup.version == "v2":
        assert ended.returncode == 0, ended.stderr
    else:
        failed(ended, 2, "model.options.inputs: needed", "API 9 or 10")


def test_a_wrong_shape_or_declaration_is_blamed_on_its_setting(setup: Setup) -> None:
    if setup.version == "v1":
        pytest.skip("nothing tells what the model has")
    config = setup.config(input_shape=[1, 4])
    failed(setup.run(config), 4, "model.input_shape: input 0 'image': 2 dimensions were given")
    total = {"name": "total", "shape": [1, 1], "dtype": "int32"}
    config = setup.config(options={"outputs": [total]})
    failed(setup.run(config), 2, "model.options.outputs: 1 declared, the model has 2")
    rows = {"name": "rows", "shape": [1, 4], "dtype": "float32"}
    config = setup.config(options={"outputs": [total, rows]})
    failed(setup.run(config), 4, "model.options.outputs: output 1 'rows': 4 was given")


def test_a_compiled_cache_is_written_and_then_enough(setup: Setup) -> None:
    cache = {"cache_dir": "cache", "cache_version": 2}
    config = setup.config(options=cache)
    assert setup.run(config).returncode == 0
    first = setup.lines()
    (setup.folder / "model.om").unlink()
    del config["model"]["path"]
    ended = setup.run(config)
    assert ended.returncode == 0, ended.stderr
    assert [line["outputs"] for line in setup.lines()] == [line["outputs"] for line in first]
    config["model"]["options"]["cache_version"] = 3
    failed(setup.run(config), 4, "model.options.cache_dir: ", "no compiled model of version 3")


def test_the_shipped_configuration(only_v2: Setup) -> None:
    setup = only_v2
    setup.env |= {"MODEL": str(setup.folder / "model.om"), "SOURCE": "synthetic:", "COLOR": "bgr"}
    setup.env["DEVICE"] = "7"  # an id
    shipped = ROOT / "configs" / "openharmony.yaml"
    failed(setup.run(shipped, "--frames", "3"), 4, "NNRT is not installed", "model.library")
    overrides = [
        f"model.library={setup.library}",
        f"sinks=[{{kind: jsonl, path: {setup.folder}/out.jsonl}}]",
    ]
    arguments = [word for override in overrides for word in ("--set", override)]
    ended = setup.run(shipped, *arguments, "--frames", "30")
    assert ended.returncode == 0, ended.stderr
    assert setup.summary()["engine"] == "nnrt"
    assert setup.summary()["device"] == "stand-in CPU (cpu)"
    assert len(setup.lines()) > 0


# As a program uses it.


def make_image(seed: int) -> Any:
    return np.random.default_rng(seed).integers(0, 256, IMAGE.shape, np.uint8)


async def check_run(executor: Executor, ring: Ring, seed: int) -> None:
    image = make_image(seed)
    async with ring.slot() as slot:
        slot.inputs[0][...] = image
        await executor.run(slot)
        for index, output in enumerate(OUTPUTS):
            wanted = nnrt_standin.expected([image], output, index)
            np.testing.assert_array_equal(slot.outputs[index], wanted)


Switch = Callable[[str, str], None]


@pytest.fixture
def switch(monkeypatch: pytest.MonkeyPatch) -> Switch:
    def turn(name: str, value: str) -> None:
        monkeypatch.setenv(f"STANDIN_NNRT_{name}", value)

    return turn


@pytest.mark.parametrize("how", ["DIE_RUNS", "LOSE_RUNS"])
async def test_a_lost_device_comes_back(setup: Setup, switch: Switch, how: str) -> None:
    switch(how, "4")
    async with setup.open() as executor, executor.ring(2) as ring:
        await check_run(executor, ring, 1)
        with pytest.raises(DeviceError, match=r"device 'stand-in NPU'.* (died|was lost), OH_NN_"):
            await check_run(executor, ring, 2)
        if setup.version == "v2":  # the runtime's tensors outlive its executors
            for seed in range(6):
                await check_run(executor, ring, seed)
            return
        with pytest.raises(DeviceError, match="has to be closed and reopened"):
            await check_run(executor, ring, 3)
    async with setup.open() as executor, executor.ring(2) as ring:
        await check_run(executor, ring, 3)


async def test_a_model_that_rested_is_tried_once_more(setup: Setup, switch: Switch) -> None:
    switch("UNLOAD_RUNS", "3,6,7")
    options = {**nnrt_standin.options(setup.version, [IMAGE], OUTPUTS), "idle_seconds": 0}
    async with setup.open(options=options) as executor, executor.ring(2) as ring:
        await check_run(executor, ring, 1)  # run 3 fails, run 4 is the same again
        await check_run(executor, ring, 2)
        with pytest.raises(RunError):
            await check_run(executor, ring, 3)  # 6 and 7: not without limit
        await check_run(executor, ring, 4)


@pytest.mark.parametrize("how", ["DIE_RUNS", "LOSE_RUNS"])
async def test_a_loss_after_a_rest_is_told_all_the_same(
    setup: Setup, switch: Switch, how: str
) -> None:
    switch(how, "3")
    options = {**nnrt_standin.options(setup.version, [IMAGE], OUTPUTS), "idle_seconds": 0}
    async with setup.open(options=options) as executor, executor.ring(2) as ring:
        with pytest.raises(DeviceError, match=r"(died|was lost), OH_NN_"):
            await check_run(executor, ring, 1)
        if setup.version == "v2":
            await check_run(executor, ring, 2)


async def test_a_model_in_use_is_not_tried_again(setup: Setup, switch: Switch) -> None:
    switch("UNLOAD_RUNS", "3")
    async with setup.open() as executor, executor.ring(2) as ring:
        with pytest.raises(RunError, match="OH_NN_FAILED"):
            await check_run(executor, ring, 1)
        await check_run(executor, ring, 2)


async def test_a_image_becomes_what_the_model_wants(setup: Setup) -> None:
    planes = StandInTensor("image", "float32", (1, 3, HEIGHT, WIDTH), "NCHW")
    setup.write((planes,), OUTPUTS)
    mean, scale = (10.0, 20.0, 30.0), (2.0, 4.0, 8.0)
    options = nnrt_standin.options(setup.version, [planes], OUTPUTS)
    folded = ImageInput("rgb", mean, scale)
    async with setup.open(image=folded, options=options) as executor, executor.ring(2) as ring:
        assert executor.inputs[0].dtype == np.uint8
        assert executor.inputs[0].shape == IMAGE.shape
        for seed in range(5):
            image = make_image(seed)
            rgb = image[..., ::-1].astype(np.float32)
            seen = (rgb - np.array(mean, np.float32)) / np.array(scale, np.float32)
            wanted = nnrt_standin.expected([seen.transpose(0, 3, 1, 2)], TOTAL)
            async with ring.slot() as slot:
                slot.inputs[0][...] = image
                await executor.run(slot)
                np.testing.assert_array_equal(slot.outputs[0], wanted)
        assert not executor.zero_copy()["input 0 'image'"]
    async with setup.open(image=None, options=options) as executor:
        assert executor.inputs[0].dtype == np.float32
        assert executor.inputs[0].shape == planes.shape


async def test_sizes_that_a_model_leaves_open(only_v2: Setup) -> None:
    path = only_v2.write((IMAGE._replace(shape=(1, -1, -1, 3)),), OUTPUTS)
    path.write_text(path.read_text().replace("output total", "range 8 64\noutput total"))
    async with only_v2.open(input_shape=IMAGE.shape) as executor, executor.ring(2) as ring:
        await check_run(executor, ring, 1)


def test_devices_are_listed(setup: Setup) -> None:
    from pipeline.engines import engine_module

    version, devices = engine_module("nnrt").list_devices(setup.library)
    assert version == {"v1": "API 9-10", "v2": "API 11+"}[setup.version]
    assert [name for _, name in devices] == ["stand-in NPU (accelerator)", "stand-in CPU (cpu)"]
