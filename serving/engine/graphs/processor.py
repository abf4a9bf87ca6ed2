"""Tells what this machine's processor can do, as far as a choice of arithmetic depends on it."""

from pathlib import Path

VNNI_FLAGS = {"avx512_vnni", "avx_vnni"}


def has_vnni(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """Tell whether int8 products are summed in 32 bits at once, so that no sum saturates; False
    where nothing says so.
    """
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False
    flags = [line.partition(":")[2].split() for line in lines if line.startswith("flags")]
    return bool(flags) and all(VNNI_FLAGS.intersection(each) for each in flags)
