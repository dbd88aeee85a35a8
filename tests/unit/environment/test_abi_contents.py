"""What an environment's manifest says beside its packages."""

from envpack.environment.abi_requirements import cuda_libraries, hidden_libraries, numpy_abi
from envpack.environment.inventory import Entry
from envpack.environment.store import Package


def entries(*paths):
    return [Entry(path, "file", "x") for path in paths]


def test_cuda_libraries_are_found_in_wheels_and_in_conda_packages():
    found = cuda_libraries(
        entries(
            "lib/python3.10/site-packages/nvidia/cudnn/lib/libcudnn_ops_infer.so.8",
            "lib/libcudart.so.12",
            "lib/libcublasLt.so.12.6.1",
            "lib/libcudart_not.txt",
            "lib/python3.10/site-packages/cudart.py",
        )
    )
    assert found == ["libcublasLt.so.12.6.1", "libcudart.so.12", "libcudnn_ops_infer.so.8"]


def test_libraries_of_the_system_count_only_where_loaders_look_first():
    assert hidden_libraries(entries("lib/libssl.so.3", "lib/x/libssl.so.3", "lib/libsslx.so", "lib/libz.so")) == [
        "libssl.so.3",
        "libz.so",
    ]


def test_numpy_names_its_interface_by_its_major_version():
    assert (
        numpy_abi(
            [Package(name="six", version="1.0", source="pip"), Package(name="numpy", version="2.1.3", source="pip")]
        )
        == "2"
    )
    assert numpy_abi([]) == ""
