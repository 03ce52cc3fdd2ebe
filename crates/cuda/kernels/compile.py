"""Compile the kernels to PTX, which is kept beside them: `python compile.py [NAME...]`; with
`--check`, compare it with what is kept.

Needs NVRTC 12.4 (`pip install nvidia-cuda-nvrtc-cu12==12.4.127`), and neither a GPU nor a toolkit.
PTX of ISA 8.4 for compute capability 8.0 runs on drivers from 550 on, on every GPU since A100.
"""

import ctypes
import glob
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
#: How it ends where there is no NVRTC.
MISSING = 77
OPTIONS = [b"--gpu-architecture=compute_80", b"-fmad=false", b"--include-path=" + HERE.encode()]


def library():
    """NVRTC, from this Python's packages or from where the loader looks."""
    for folder in sys.path:
        for found in glob.glob(os.path.join(folder, "nvidia", "cuda_nvrtc", "lib", "libnvrtc.so*")):
            if "builtins" not in found:
                return ctypes.CDLL(found)
    return ctypes.CDLL("libnvrtc.so.12")


def compiled(nvrtc, name):
    """The PTX of one file."""
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    with open(os.path.join(HERE, f"{name}.cu"), "rb") as file:
        source = file.read()
    created = nvrtc.nvrtcCreateProgram(
        ctypes.byref(program), source, f"{name}.cu".encode(), 0, None, None
    )
    options = (ctypes.c_char_p * len(OPTIONS))(*OPTIONS)
    failed = created or nvrtc.nvrtcCompileProgram(program, len(OPTIONS), options)
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetProgramLog(program, log)
    if failed:
        sys.exit(f"{name}.cu: {log.value.decode()}")
    nvrtc.nvrtcGetPTXSize(program, ctypes.byref(size))
    text = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetPTX(program, text)
    return text.value


def main():
    try:
        nvrtc = library()
    except OSError as error:
        print(f"NVRTC is not here: {error}", file=sys.stderr)
        sys.exit(MISSING)
    files = sorted(glob.glob(os.path.join(HERE, "*.cu")))
    names = [name for name in sys.argv[1:] if name != "--check"]
    for name in names or [os.path.basename(file)[:-3] for file in files]:
        ptx, kept = compiled(nvrtc, name), os.path.join(HERE, f"{name}.ptx")
        if "--check" in sys.argv:
            with open(kept, "rb") as file:
                if file.read() != ptx:
                    sys.exit(f"{name}.ptx is not that of {name}.cu: `python compile.py` makes it")
            print(f"{name}.ptx is that of {name}.cu")
            continue
        with open(kept, "wb") as file:
            file.write(ptx)
        print(f"{name}.ptx")


if __name__ == "__main__":
    main()
