"""The check of the GPU relies on what the server logs about it, not on a successful start.

Triton 24.10 wrote these lines on an H100; those of an old driver it wrote on a machine without one.
"""

from envpack.verification.gpu import check_gpu
from envpack.verification.verdict import failed, passed

POOL = 'I1121 pinned_memory_manager.cc:277] "CUDA memory pool is created on device {} with size 67108864"\n'
INSUFFICIENT = (
    'W1121 pinned_memory_manager.cc:273] "Unable to allocate pinned system memory, pinned memory pool will not be '
    'available: CUDA driver version is insufficient for CUDA runtime version"\n'
)
DISABLED = 'I1121 cuda_memory_manager.cc:117] "CUDA memory pool disabled"\n'
DRIVER = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\n"
TOO_OLD = "the driver is older than the release's CUDA, or the server cannot access the device: check with nvidia-smi"


class Server:
    """The parts of a server that the check reads."""

    def __init__(self, log, devices=(), driver=""):
        self._log, self._devices, self._driver = log, devices, driver

    def log_size(self):
        return 0

    def log(self, since=0):
        return self._log

    def list_folder(self, folder):
        return self._devices if folder == "/dev" else ()

    def read_text(self, file):
        return self._driver


def test_a_pool_on_each_device_is_a_gpu():
    check = check_gpu(Server(POOL.format(0) + POOL.format(1), ("nvidia0", "nvidiactl"), DRIVER))
    assert check == passed("gpu", "the server created memory pools on GPU 0, 1, driver 550.54.15")


def test_what_models_print_is_no_sign_of_a_gpu_or_of_none():
    loading = 'I1126 18:43:20.601468 22149 model_lifecycle.cc:472] "loading: m:1"\n'
    printed = "E cuda_driver.cc:152] failed call to cuInit: CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected\n"
    nodes = ("nvidia0", "nvidiactl")
    assert check_gpu(Server(POOL.format(0) + loading + printed, nodes)).ok
    assert check_gpu(Server(POOL.format(0) + loading.replace('"', "") + printed, nodes)).ok  # up to 24.02
    assert not check_gpu(Server(POOL.format(0) + printed + loading, nodes)).ok
    assert not check_gpu(Server(loading + POOL.format(0), nodes)).ok


def test_no_device_is_no_gpu():
    check = check_gpu(Server("", ("null", "shm")))
    assert check == failed(
        "gpu",
        "the server has no GPU: there is no /dev/nvidia0",
        "check GPU and driver with nvidia-smi; a container also needs nvidia-container-toolkit",
    )


def test_a_device_without_a_memory_pool_is_no_gpu():
    check = check_gpu(Server("", ("nvidia0",)))
    assert check == failed("gpu", "the server cannot use the GPU: it created no memory pool on it", TOO_OLD)


def test_an_old_driver_is_reported():
    check = check_gpu(Server(INSUFFICIENT + DISABLED, ("nvidia0",)))
    sign = "CUDA driver version is insufficient for CUDA runtime version"
    assert check == failed("gpu", f"the server cannot use the GPU: {sign}", TOO_OLD)


def test_the_choice_of_gpus_is_named_if_the_server_has_none():
    check = check_gpu(Server("", ("nvidia0",)), "7")
    assert check == failed(
        "gpu",
        "the server cannot use the GPU, with CUDA_VISIBLE_DEVICES=7: it created no memory pool on it",
        "unset CUDA_VISIBLE_DEVICES, or name GPUs that nvidia-smi -L lists",
    )
    assert check_gpu(Server(POOL.format(0), ("nvidia0",)), "7").ok
