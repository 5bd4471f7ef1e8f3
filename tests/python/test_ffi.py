"""_ffi.py against the headers, the symbols of the libraries, and what a C compiler lays out."""

import ast
import ctypes
import re
import shutil
import subprocess
import sys

import pytest

from rallypoint import _ffi
from source_tree import PACKAGE, TOP

HEADERS = {
    "ckpt": [TOP / "libckpt" / "include" / "ckpt.h"],
    "rdzv": [TOP / "librdzv" / "include" / name for name in ("rdzv.h", "rdzv_client.h")],
}
FUNCTIONS = {"ckpt": _ffi.CKPT_FUNCTIONS, "rdzv": _ffi.RDZV_FUNCTIONS}
STRUCTS = {
    "ckpt": ["ckpt_error", "ckpt_allocator", "ckpt_blob", "ckpt_group", "ckpt_board",
             "ckpt_options", "ckpt_tensor", "ckpt_saved", "ckpt_load_options", "ckpt_info"],
    "rdzv": ["rdzv_error", "rdzv_allocator", "rdzv_server_options", "rdzv_server_stats",
             "rdzv_job_options", "rdzv_bytes", "rdzv_client_options", "rdzv_reply"],
}


def header(product):
    text = "".join(path.read_text() for path in HEADERS[product])
    return re.sub(r"/\*.*?\*/", " ", text, flags=re.S)


@pytest.mark.parametrize("product", ["ckpt", "rdzv"])
def test_every_function_of_the_header_is_declared(product):
    api = product.upper() + "_API"
    declared = {}
    text = re.sub(r"^#.*$", "", header(product), flags=re.M)
    for match in re.finditer(api + r"\s+([^;]*?)\b(\w+)\(([^;]*)\);", text, flags=re.S):
        result, name, arguments = (" ".join(part.split()) for part in match.groups())
        count = 0 if arguments == "void" else arguments.count(",") + 1
        declared[name] = (result, count)
    ours = FUNCTIONS[product]
    assert set(ours) == set(declared)
    for name, (result, count) in declared.items():
        restype, argtypes = ours[name]
        assert len(argtypes) == count, name
        assert (restype is None) == (result == "void"), name


@pytest.mark.parametrize("product", ["ckpt", "rdzv"])
def test_every_exported_symbol_is_declared(product):
    lib = getattr(_ffi, product)()
    if not shutil.which("nm"):
        pytest.skip("nm is not installed")
    out = subprocess.run(["nm", "-D", "--defined-only", lib._name], check=True,
                         capture_output=True, text=True).stdout
    exported = set(re.findall(r" T (\w+)", out))
    assert exported == set(FUNCTIONS[product])


@pytest.mark.parametrize("product", ["ckpt", "rdzv"])
def test_reviewed_symbol_list_is_declared(product):
    reviewed = TOP / "tests" / "abi" / f"lib{product}.symbols"
    if not reviewed.exists():
        pytest.skip(f"{reviewed} is not there")
    names = {line.split("@")[0].split()[-1] for line in reviewed.read_text().splitlines()
             if line.strip() and not line.startswith("#")}
    assert {name for name in names if name.startswith(product)} == set(FUNCTIONS[product])


@pytest.mark.parametrize("product", ["ckpt", "rdzv"])
def test_every_struct_of_the_header_is_declared(product):
    names = set(re.findall(rf"typedef struct ({product}\w*) \{{", header(product)))
    assert names == set(STRUCTS[product])


@pytest.mark.parametrize("product", ["ckpt", "rdzv"])
def test_struct_layout_is_the_compilers(product, tmp_path):
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler")
    lines = [f'#include "{path}"' for path in HEADERS[product]]
    lines += ["#include <stdio.h>", "int main(void) {"]
    for struct in STRUCTS[product]:
        lines.append(f'printf("{struct} %zu\\n", sizeof({struct}));')
        for field, *_ in getattr(_ffi, struct)._fields_:
            lines.append(f'printf("{struct}.{field} %zu %zu\\n", offsetof({struct}, {field}), '
                         f'sizeof((({struct} *)0)->{field}));')
    source, program = tmp_path / "layout.c", tmp_path / "layout"
    source.write_text("\n".join(lines + ["return 0;", "}"]))
    subprocess.run([compiler, "-std=c99", str(source), "-o", str(program)], check=True)
    expected = subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout

    found = []
    for struct in STRUCTS[product]:
        cls = getattr(_ffi, struct)
        found.append(f"{struct} {ctypes.sizeof(cls)}")
        for field, *_ in cls._fields_:
            place = getattr(cls, field)
            found.append(f"{struct}.{field} {place.offset} {place.size}")
    assert found == expected.split("\n")[:-1]


def test_constants_are_the_headers():
    text = header("ckpt")
    dtypes = re.findall(r"X\((\w+), (\d+), (\d+), \"\w+\"\)", text)
    assert {name: (int(value), int(size)) for name, value, size in dtypes} == _ffi.CKPT_DTYPES
    lib = _ffi.ckpt()
    for value, size in _ffi.CKPT_DTYPES.values():
        assert lib.ckpt_dtype_size(value) == size
    for name in ("CKPT_MAX_DIMS", "CKPT_MAX_NAME_BYTES"):
        assert int(re.search(rf"#define {name} (\d+)", text).group(1)) == getattr(_ffi, name)
    engines = dict(re.findall(r"CKPT_ENGINE_(\w+) = (\d)", text))
    assert {name.lower(): int(value) for name, value in engines.items()} == _ffi.CKPT_ENGINES
    assert "#define CKPT_NEWEST INT64_MIN" in text


def test_version_is_one_everywhere():
    import rallypoint

    expected = ".".join(map(str, _ffi.VERSION))
    assert rallypoint.__version__ == expected
    pyproject = (TOP / "bindings" / "python" / "pyproject.toml").read_text()
    assert f'\nversion = "{expected}"\n' in pyproject
    for product in HEADERS:
        numbers = re.findall(rf"{product.upper()}_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)",
                             header(product))
        assert ".".join(numbers) == expected


def test_other_version_is_refused():
    _ffi.check_version("ckpt", "libckpt.so", 199)
    with pytest.raises(ImportError, match=r"/x/libckpt.so is libckpt 0.2.3, but .* 0.1.0"):
        _ffi.check_version("ckpt", "/x/libckpt.so", 203)
    with pytest.raises(ImportError, match="install both from one source"):
        _ffi.check_version("ckpt", "/x/libckpt.so", 10100)


def compile_library(folder, body):
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler")
    (folder / "other.c").write_text(body)
    subprocess.run([compiler, "-shared", "-fPIC", str(folder / "other.c"), "-o",
                    str(folder / "libckpt.so.0")], check=True)


@pytest.mark.parametrize("body, text", [
    ("int ckpt_version(void) { return 905; }", "is libckpt 0.9.5, but this is the Python package"),
    ("int other(void) { return 0; }", "has no function ckpt_version"),
    ("int ckpt_version(void) { return 100; }", "has no function ckpt_strerror"),
    (None, "there is no libckpt.so.0 or libckpt.so in it"),
])
def test_wrong_library_is_an_import_error(tmp_path, package_env, body, text):
    if body is not None:
        compile_library(tmp_path, body)
    package_env["RALLYPOINT_LIB_DIR"] = str(tmp_path)
    package_env["PYTHONPATH"] = str(PACKAGE)
    done = subprocess.run([sys.executable, "-c", "import rallypoint; rallypoint.ckpt"],
                          env=package_env, capture_output=True, text=True)
    assert done.returncode == 1
    assert "ImportError" in done.stderr and text in done.stderr


def test_source_is_python_3_9():
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(path.read_text(), feature_version=(3, 9))
        futures = [node for node in tree.body if isinstance(node, ast.ImportFrom)
                   and node.module == "__future__"]
        assert futures, f"{path} lacks `from __future__ import annotations`"
