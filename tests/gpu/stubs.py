"""Builds stand-ins for CUDA's libraries, so that graphs are placed on a machine without a GPU.

    python -m tests.gpu.stubs PROVIDER FOLDER    # PROVIDER: libonnxruntime_providers_cuda.so
    LD_LIBRARY_PATH=FOLDER python -m tests.gpu --only placement

ONNX Runtime then opens CUDA sessions and assigns nodes as it does on a Hopper GPU; nothing can be
run. Needs gcc and nm.
"""

import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

NAMES = (
    *("libcudart.so.13", "libcublas.so.13", "libcublasLt.so.13", "libcurand.so.10"),
    *("libcuda.so.1", "libcudnn.so.9"),
)
HOPPER = 9  # compute capability, at the places that cudaDeviceProp of CUDA 13 has
PROPERTIES = {360: HOPPER, 384: 132, 320: 1024, 308: 32, 604: 2048}
# Functions that have to answer something; all others return 0, success.
ANSWERS = {
    "cuInit": "(int f){return 0;}",
    "cuDeviceGetCount": "(int*n){*n=1;return 0;}",
    "cudaGetDeviceCount": "(int*n){*n=1;return 0;}",
    "cudaGetDevice": "(int*n){*n=0;return 0;}",
    "cudaDriverGetVersion": "(int*v){*v=13000;return 0;}",
    "cudaRuntimeGetVersion": "(int*v){*v=13000;return 0;}",
    "cudaMemGetInfo": "(size_t*f,size_t*t){*f=*t=80ul<<30;return 0;}",
    "cudaMalloc": "(void**p,size_t n){*p=calloc(1,n+1);return 0;}",
    "cudaMallocHost": "(void**p,size_t n){*p=calloc(1,n+1);return 0;}",
    "cudaHostAlloc": "(void**p,size_t n,int f){*p=calloc(1,n+1);return 0;}",
    "cudaStreamIsCapturing": "(void*s,int*c){*c=0;return 0;}",
    "cudaDeviceGetAttribute": f"(int*v,int a,int d){{*v=a==75?{HOPPER}:a==76?0:1024;return 0;}}",
    "cudnnGetVersion": "(){return 91000;}",
    "cudnnDropoutGetStatesSize": "(void*h,size_t*s){*s=256;return 0;}",
    "cudnnGetRNNWeightParams": (
        "(void*h,void*d,int l,size_t n,char*w,int k,void*m,void**a,void*b,void**c)"
        "{*a=*c=w;return 0;}"
    ),
    "cudnnGetTensorNdDescriptor": (
        "(void*t,int q,int*y,int*n,int*d,int*s){*n=q;while(q--)d[q]=s[q]=1;return 0;}"
    ),
}
TEXTS = ("cudaGetErrorString", "cudaGetErrorName", "cudnnGetErrorString", "cudnnGetLastErrorString")


def build(provider: Path, folder: Path) -> None:
    """Write one library under the names of all that the provider asks for."""
    folder.mkdir(parents=True, exist_ok=True)
    versions = _missing_symbols(provider)
    symbols = {*(name for names in versions.values() for name in names), *ANSWERS}
    symbols |= {name for name in _words(provider) if re.fullmatch(r"cudnn[A-Z]\w+", name)}
    source, script, library = (folder / name for name in ("stub.c", "stub.map", "libstub.so"))
    source.write_text("#include <stdlib.h>\n" + "\n".join(map(_function, sorted(symbols))) + "\n")
    script.write_text("".join(_version(*each) for each in versions.items() if each[0]))
    options = ["-w", "-shared", "-fPIC", f"-Wl,--version-script={script}"]
    subprocess.run(["gcc", *options, str(source), "-o", str(library)], check=True)
    for name in NAMES:
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(library.name)


def _missing_symbols(provider: Path) -> dict[str, set[str]]:
    """List what the provider wants of CUDA, by the version it wants it of."""
    listed = subprocess.run(
        ["nm", "-D", "--undefined-only", str(provider)], capture_output=True, text=True, check=True
    )
    found: dict[str, set[str]] = defaultdict(set)
    for line in listed.stdout.splitlines():
        name, _, version = line.split()[-1].partition("@")
        if re.match(r"(__cuda|cu(da|blas|rand|Tensor))", name):
            found[version].add(name)
    return found


def _words(provider: Path) -> set[str]:
    """Names in the provider's data: cuDNN's functions are looked up by them when it runs."""
    content = provider.read_bytes()
    return {word.decode() for word in re.findall(rb"\0(cudnn[A-Z]\w{3,60})(?=\0)", content)}


def _function(name: str) -> str:
    if name in TEXTS:
        return f'const char*{name}(){{return "stub";}}'
    if name == "cudaGetDeviceProperties":
        values = "".join(f"*(int*)(p+{place})={value};" for place, value in PROPERTIES.items())
        return f"int {name}(char*p,int d){{for(int i=0;i<1008;i++)p[i]=0;{values}return 0;}}"
    if name == "__cudaRegisterFatBinary":
        return f"void*{name}(void*f){{static long x;return &x;}}"
    if name.startswith("cudnnCreate"):
        return f"int {name}(void**p){{*p=calloc(1,4096);return 0;}}"
    return f"long {name}{ANSWERS.get(name, '(){return 0;}')}"


def _version(version: str, names: set[str]) -> str:
    return f"{version} {{ global: {' '.join(f'{name};' for name in sorted(names))} }};\n"


if __name__ == "__main__":
    build(Path(sys.argv[1]), Path(sys.argv[2]))
