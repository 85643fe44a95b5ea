#!/bin/bash
# Fetches the foreign clients and builds the stand-in for both machines; see README.md.
#
#     tests/foreign/prepare.sh FOLDER
set -euo pipefail

for needed in cmake ninja g++ aarch64-linux-gnu-g++ apt-get; do
    command -v "$needed" >/dev/null || missing="${missing:-} $needed"
done
command -v qemu-aarch64-static >/dev/null || command -v qemu-aarch64 >/dev/null ||
    missing="${missing:-} qemu-aarch64-static"
if [ -n "${missing:-}" ]; then
    echo "prepare.sh: missing:$missing; README.md names the packages that bring them" >&2
    exit 1
fi
trap 'echo "prepare.sh: line $LINENO failed; the logs are in ${work:-the folder}" >&2' ERR

source_root=$(cd "$(dirname "$0")/../.." && pwd)
mkdir -p "${1:?which folder to fill}"
work=$(cd "$1" && pwd)
python=${PYTHON:-python3.11}
root=$work/aarch64

echo "== the stand-in, for this machine and for aarch64"
for machine in x86_64 aarch64; do
    more=()
    if [ "$machine" = aarch64 ]; then
        more=(--toolchain "$source_root/native/cmake/aarch64-linux-gnu.cmake")
    fi
    cmake -S "$source_root/native" -B "$work/build-$machine" -G Ninja "${more[@]}" \
        -DCMAKE_BUILD_TYPE=Release -DPIPELINE_BINDING=OFF -DPIPELINE_TESTS=ON >"$work/cmake-$machine.log" 2>&1 ||
        { tail -n 20 "$work/cmake-$machine.log" >&2; exit 1; }
    cmake --build "$work/build-$machine" --target rknnrt_2_3 rknnrt_1_5
done

echo "== ztu_somemodelruntime_ez_rknn_async, in an environment of its own"
[ -d "$work/ztu" ] || "$python" -m venv "$work/ztu"
"$work/ztu/bin/pip" install -q ztu_somemodelruntime_ez_rknn_async==0.11.0 pytest pytest-asyncio

echo "== an aarch64 Python"
[ -x "$root/usr/bin/python3.11" ] ||
    "$source_root/tests/aarch64/root.sh" "$root" python3.11 libstdc++6

echo "== rknn-toolkit-lite2, in it"
mkdir -p "$root/opt/toolkit" "$work/wheels"
"$work/ztu/bin/pip" download -q --dest "$work/wheels" --no-deps --only-binary=:all: \
    --python-version 3.11 --platform manylinux_2_17_aarch64 --platform manylinux2014_aarch64 \
    rknn-toolkit-lite2==2.5.0 numpy==1.26.4 psutil ruamel.yaml
for wheel in "$work"/wheels/*.whl; do "$python" -m zipfile -e "$wheel" "$root/opt/toolkit"; done

echo "== what tells the toolkit that it is on an RK3588"
mkdir -p "$root/proc/device-tree" "$root/dev/dri"
printf 'vendor,board\0rockchip,rk3588\0' >"$root/proc/device-tree/compatible"
: >"$root/dev/dri/renderD129"
cp "$work/build-aarch64/tests/vendor/rknn/2_3/librknnrt.so" "$root/usr/lib/"

cat <<END
Ready:
    RKNN_STANDIN=$work/build-x86_64/tests/vendor/rknn/2_3/librknnrt.so \\
    RKNN_LITE_ROOT=$root $work/ztu/bin/python -m pytest tests/foreign
END
