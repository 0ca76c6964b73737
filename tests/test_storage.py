"""Files are opened in one module only; there they are regular, and written whole or not at all."""

import ast
import errno
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from probagg import storage
from probagg.errors import InputError
from probagg.storage import (
    append,
    map_array,
    open_regular,
    parse_toml,
    read_bytes,
    whole_folder,
    write_atomically,
)

SOURCE = Path(__file__).parents[1] / "src" / "probagg"
# Methods and functions that open, move or copy files, by their last name.
OPENING = {
    "open", "fdopen", "read_text", "read_bytes", "write_text", "write_bytes", "touch",
    "rename", "hardlink_to", "symlink_to", "link", "symlink", "copy2", "copyfile", "copytree",
    "memmap", "open_memmap", "fromfile", "tofile", "loadtxt", "genfromtxt", "savetxt",
    "savez_compressed", "load_npz", "save_npz", "read_csv", "read_parquet", "ParquetFile",
    "memory_map", "read_h5ad", "write_h5ad", "ZipFile", "TarFile", "connect", "SummaryWriter",
    "safe_open", "load_file", "save_file", "mkstemp", "NamedTemporaryFile", "TemporaryDirectory",
}  # fmt: skip
# The same by their full name, as the last one is common.
NAMED = {"os.replace", "np.load", "np.save", "np.savez", "torch.load", "torch.save", "pickle.load"}
ALLOWED = {
    # What `open_regular` opened, or bytes.
    "app/embed/networks.py": ["torch.load"],
    "arrays.py": ["np.save", "np.savez"],
    "data/arrays.py": ["anndata.read_h5ad", "archive.open", "sp.load_npz", "zipfile.ZipFile"],
    "data/opening.py": ["np.memmap", "pickle.load"],
    "data/photo.py": ["Image.open"],
    "data/tables.py": ["parquet.ParquetFile"],
    "pac/files.py": ["pa.memory_map", "parquet.ParquetFile"],
    # Text in memory.
    "data/tables.py ": ["pandas().read_csv"],
    # Into what `whole_folder` and the seal of a run make whole.
    "app/run/output.py": ["place.symlink_to"],
    "app/run/folder.py": ["os.replace"],
    # SQLite's own file, the lock, and what is not of a disk.
    "app/embed/cache.py": ["sqlite3.connect"],
    "processes.py": ["os.open"],
    "app/cli/terminal.py": ["os.open"],
    "environment.py": ["info.read_text", "path.read_text"],
    # Not files.
    "app/run/methods.py": ["request.open"],
    "app/run/options.py": ["self.open"],
}


def openings(path):
    """Return the calls in a file that open files, by name, once each."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            last = node.func.attr if isinstance(node.func, ast.Attribute) else name
            is_own = isinstance(node.func, ast.Name) and hasattr(storage, name)
            if (last in OPENING or name in NAMED) and not is_own:
                found.add(name if len(name) < 30 else last)
    return sorted(found)


def test_nothing_but_storage_opens_files():
    """A file that is opened elsewhere may be a pipe, without end, or half written."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        if path.name != "storage.py" and (calls := openings(path)):
            found[path.relative_to(SOURCE).as_posix()] = calls
    allowed = {}
    for name, calls in ALLOWED.items():
        allowed[name.strip()] = sorted(allowed.get(name.strip(), []) + calls)
    assert found == allowed


def test_what_never_ends_is_neither_waited_for_nor_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/zero"):
        with pytest.raises(OSError, match="It is not a regular file"):
            read_bytes(path)
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(10**12)
    with pytest.raises(OSError, match="has 1,000,000,000,000 bytes, but at most 100 are read"):
        read_bytes(tmp_path / "sparse", 100)
    with pytest.raises(InputError, match="sparse needs about 1e\\+03 GB of memory"):
        read_bytes(tmp_path / "sparse")


def test_a_link_is_followed_only_where_one_is_expected(tmp_path):
    (tmp_path / "a").write_text("mine")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    assert read_bytes(tmp_path / "b") == b"mine"
    with pytest.raises(OSError, match="symbolic links"):
        open_regular(tmp_path / "b", follow=False)
    with pytest.raises(OSError, match="symbolic links"):
        append(tmp_path / "b", "more")
    write_atomically(tmp_path / "b", b"ours")  # takes the place of the link
    assert ((tmp_path / "a").read_text(), (tmp_path / "b").read_text()) == ("mine", "ours")


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_mapped_array_is_the_one_that_was_saved(tmp_path, order):
    X = np.asarray(np.random.default_rng(0).normal(size=(7, 3)), order=order)
    np.save(tmp_path / "a.npy", X)
    np.testing.assert_array_equal(map_array(tmp_path / "a.npy"), X)
    np.save(tmp_path / "b.npy", np.array([{}]))
    with pytest.raises(ValueError, match="Python objects"):
        map_array(tmp_path / "b.npy")


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not count mapped files")
def test_an_array_above_the_limit_of_address_space_is_told(tmp_path):
    with (tmp_path / "a.npy").open("wb") as file:
        header = {"descr": "<f4", "fortran_order": False, "shape": (2**33, 2)}
        np.lib.format.write_array_header_1_0(file, header)
        file.truncate(file.tell() + 2**36)
    code = f"""
import numpy, resource
from probagg.storage import map_array
resource.setrlimit(resource.RLIMIT_AS, (2**35, 2**35))
map_array({str(tmp_path / "a.npy")!r})
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "a limit on the address space of this process is below its size" in result.stderr


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (".".join("a" * 60_000) + " = 1", "thousands of dots"),
        ((".".join("a" * 3_000) + " = 1\n") * 9, "thousands of dots"),
        ("a = " + "9" * 100_000, "4300 digits"),
        ("a = " + "[" * 100_000, "nested too deeply"),
    ],
    ids=["a key of many parts", "many such keys", "a long number", "deep"],
)
def test_toml_without_end_is_refused_at_once(text, why):
    began = time.process_time()
    with pytest.raises(ValueError, match=why):
        parse_toml(text)
    assert time.process_time() - began < 2.0


def test_a_full_disk_names_the_file_that_was_to_be_written(tmp_path):

    def fail():
        yield b"some"
        raise OSError(errno.ENOSPC, "No space left on device")

    def fill(path):
        with whole_folder(path):
            list(fail())

    for write in (fill, lambda path: write_atomically(path, fail())):
        with pytest.raises(OSError, match="No space") as caught:
            write(tmp_path / "a")
        assert caught.value.filename == str(tmp_path / "a")
        assert caught.value.errno == errno.ENOSPC
    assert not list(tmp_path.iterdir())


def test_files_behind_a_linked_folder_are_neither_found_nor_removed(tmp_path):
    """A folder that somebody sent may have one that leads to another run's."""
    theirs, mine = tmp_path / "theirs" / "step-1.safetensors", tmp_path / "mine"
    theirs.parent.mkdir()
    theirs.write_text("theirs")
    mine.mkdir()
    (mine / "checkpoints").symlink_to(theirs.parent)
    assert storage.find_files(mine, ["checkpoints/*"]) == set()
    storage.remove_files(mine, ["checkpoints/*", "*/step-1.safetensors"])
    assert theirs.read_text() == "theirs"
