"""A run takes the place of another whole or not at all, and of nobody else's files."""

import json
import resource
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from commands import cluster_by_pac, probagg

from probagg.app.run.folder import MANIFEST, UNFINISHED, RunFolder, unfinished

# Each child is killed at its n-th change of the file system, which an audit hook counts.
KILLS = textwrap.dedent("""
    import contextlib, hashlib, json, os, signal, sys
    from pathlib import Path
    from probagg.app.run.folder import RunFolder

    EVENTS = ("os.rename", "os.remove", "os.rmdir", "os.mkdir")
    OLD = {"config.toml": "old", "classes.csv": "old", "profiles.csv": "old"}
    NEW = {"config.toml": "new", "log.txt": "new", "overlaps.csv": "new", "review.json": "new"}
    MINE = {"notes.txt": "mine", "checkpoints/mine.pt": "mine", "review.json": "mine"}

    def fill(path, files, **options):
        with RunFolder(path, **options) as run:
            for name, text in files.items():
                (run.work / name).parent.mkdir(exist_ok=True)
                run.write(name, text)

    def kill_at(n):
        count = 0
        def hook(event, arguments):
            nonlocal count
            count += event in EVENTS or (event == "open" and "w" in str(arguments[1]))
            if count == n:
                count += 1  # the kill is an event too
                os.kill(os.getpid(), signal.SIGKILL)
        sys.addaudithook(hook)

    def contents(path):
        return {str(p.relative_to(path)): p.read_text() for p in path.rglob("*") if p.is_file()}

    def is_whole(path, files):
        found = contents(path)
        manifest = found.pop("manifest.json")
        hashes = {k: hashlib.sha256(v.encode()).hexdigest() for k, v in files.items()}
        kept = {k: v for k, v in found.items() if not k.startswith(".probagg")}
        mine = dict(MINE)
        if files is NEW:
            mine["review.old.json"] = mine.pop("review.json")
        return json.loads(manifest)["sha256"] == hashes and kept == files | mine

    folder, said, n = Path(sys.argv[1]), [], 0
    while True:
        n += 1
        path = folder / str(n)
        fill(path, OLD)
        for name, text in MINE.items():
            (path / name).parent.mkdir(exist_ok=True)
            (path / name).write_text(text)
        child = os.fork()
        if child == 0:
            kill_at(n)
            fill(path, NEW, overwrite=True)
            os._exit(0)
        if os.waitpid(child, 0)[1] == 0:
            break
        if (path / ".probagg-unfinished" / "manifest.json").exists():
            said.append("moving")
        else:
            said.append("old" if is_whole(path, OLD) else "new")
            assert said[-1] == "old" or is_whole(path, NEW), (n, contents(path))
        if said[-1] == "old":
            fill(path, NEW, overwrite=True)
        else:  # the next command, whatever becomes of it
            with contextlib.suppress(KeyError), RunFolder(path, overwrite=True):
                raise KeyError
        assert is_whole(path, NEW), (n, contents(path))
        assert not (path / ".probagg-unfinished").exists(), n
    print(json.dumps(said))
""")


def contents(folder):
    return {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_kill_at_any_moment_leaves_the_old_run_or_the_new_one(tmp_path):
    """Before the seal the old run is as it was; after it, the next command finishes the move."""
    command = [sys.executable, "-c", KILLS, str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    said = json.loads(result.stdout.splitlines()[-1])
    moments = {state: said.count(state) for state in ("old", "moving", "new")}
    assert said == [state for state, n in moments.items() for _ in range(n)], "in this order"
    assert min(moments.values()) >= 3


def test_a_full_disk_leaves_the_old_run(rows, tmp_path):
    """A limit on the size of files is an error of the system, as a full disk is."""
    run = tmp_path / "run"
    assert cluster_by_pac(rows, "-k", 2, "--out", run).exit_code == 0
    before = contents(run)
    most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, most[1]))
    try:
        result = cluster_by_pac(rows, "-k", 3, "--out", run, "--overwrite")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, most)
    assert result.exit_code == 1
    assert "File too large" in result.stderr
    assert contents(run) == before
    assert probagg("predict", run, rows).exit_code == 0


def test_a_run_that_fails_leaves_no_trace_in_the_old_one(tmp_path):
    with RunFolder(tmp_path / "run") as run:
        run.write("log.txt", "old")
    before = contents(tmp_path)
    with pytest.raises(TypeError), RunFolder(tmp_path / "run", overwrite=True) as run:
        run.write("log.txt", 3.5)
    assert contents(tmp_path) == before
    assert not unfinished(run.path).exists()


@pytest.mark.parametrize(
    "name", [".lock", ".run/state", "config.toml", MANIFEST, "manifest.txt", f"{UNFINISHED}.bak"]
)
def test_a_folder_of_another_program_is_refused(rows, tmp_path, name):
    """A name that we use too does not make it ours."""
    other = tmp_path / "other"
    (other / name).parent.mkdir(parents=True)
    (other / name).write_text('{"name": "an app", "sha256": {}}')
    (other / "classes.csv").write_text("theirs")
    before = contents(other)
    for options in ((), ("--overwrite",)):
        result = cluster_by_pac(rows, "-k", 2, "--out", other, *options)
        assert result.exit_code == 2
        assert "holds other files and no run" in result.output
    assert contents(other) == before


def test_what_links_to_another_place_is_not_ours(rows, tmp_path):
    """Neither the place of an unfinished run nor a folder in it may lead elsewhere."""
    outside, other = tmp_path / "outside", tmp_path / "other"
    (outside / "checkpoints").mkdir(parents=True)
    (outside / "checkpoints" / "step-1.safetensors").write_text("mine")
    (outside / "log.txt").write_text("mine")
    other.mkdir()
    before = contents(outside)
    assert cluster_by_pac(rows, "-k", 2, "--out", other).exit_code == 0
    unfinished(other).symlink_to(outside)
    result = cluster_by_pac(rows, "-k", 2, "--out", other, "--overwrite")
    assert (result.exit_code, "is not a folder" in result.output) == (2, True)
    unfinished(other).unlink()
    unfinished(other).mkdir()
    (unfinished(other) / "checkpoints").symlink_to(outside / "checkpoints")
    (other / "log.txt").unlink()
    (other / "log.txt").symlink_to(outside / "log.txt")
    (other / "tensorboard").symlink_to(outside)
    (tmp_path / "shortcut").symlink_to(other)
    result = cluster_by_pac(rows, "-k", 2, "--out", tmp_path / "shortcut", "--overwrite")
    assert result.exit_code == 0, result.output
    assert contents(outside) == before
    assert (tmp_path / "shortcut").is_symlink()


@pytest.mark.parametrize("name", ["tensorboard", "checkpoints", "metrics.jsonl"])
def test_a_link_in_an_unfinished_run_is_removed_and_not_followed(tmp_path, name):
    """Training would write events, checkpoints and records where it leads."""
    outside, work = tmp_path / "outside", unfinished(tmp_path / "run")
    outside.mkdir()
    (outside / "mine").write_text("mine")
    work.mkdir(parents=True)
    (work / name).symlink_to(outside / "mine" if "." in name else outside)
    with RunFolder(tmp_path / "run") as folder:
        assert not (folder.work / name).exists()
        folder.write("log.txt", "a run")
    assert contents(outside) == {Path("mine"): b"mine"}


@pytest.mark.parametrize("name", ["../thesis.tex", "notes.txt", "linked/metrics.jsonl", "absolute"])
def test_overwrite_removes_only_files_that_runs_write(run, rows, tmp_path, name):
    """An edited manifest may list any path; the code's own list decides."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (run / "linked").symlink_to(outside)
    victim = {"absolute": tmp_path / "absolute.txt"}.get(name, run / name)
    victim.write_text("mine")
    manifest = json.loads((run / MANIFEST).read_text())
    manifest["sha256"][str(victim) if name == "absolute" else name] = "0" * 64
    (run / MANIFEST).write_text(json.dumps(manifest))
    result = cluster_by_pac(rows, "-k", 3, "--out", run, "--overwrite")
    assert result.exit_code == 0, result.output
    assert victim.read_text() == "mine"


def test_overwrite_does_not_follow_a_linked_folder(run, rows, tmp_path):
    """Even a name that runs write is left alone where its folder leads out of the run."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "events.out.tfevents.1").write_text("mine")
    (run / "tensorboard").symlink_to(outside)
    manifest = json.loads((run / MANIFEST).read_text())
    manifest["sha256"]["tensorboard/events.out.tfevents.1"] = "0" * 64
    (run / MANIFEST).write_text(json.dumps(manifest))
    assert cluster_by_pac(rows, "-k", 3, "--out", run, "--overwrite").exit_code == 0
    assert (outside / "events.out.tfevents.1").read_text() == "mine"


def test_overwrite_still_removes_the_old_run(run, rows):
    """Files of the old run that the new one does not write go, so that no mixture stays."""
    manifest = json.loads((run / MANIFEST).read_text())
    (run / "classes.csv").write_text("row,class\n")
    manifest["sha256"]["classes.csv"] = "0" * 64
    (run / MANIFEST).write_text(json.dumps(manifest))
    assert cluster_by_pac(rows, "-k", 3, "--out", run, "--overwrite").exit_code == 0
    assert not (run / "classes.csv").exists()


def test_what_a_person_put_into_a_run_survives_overwrite(rows, tmp_path):
    run = tmp_path / "run"
    assert cluster_by_pac(rows, "-k", 2, "--out", run).exit_code == 0
    mine = [
        "checkpoints/best.pt",
        "checkpoints/step-3.safetensors",
        "tensorboard/notes.json",
        "a/b.txt",
    ]
    for name in mine:
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).write_text("mine")
    assert cluster_by_pac(rows, "-k", 3, "--out", run, "--overwrite").exit_code == 0
    assert [(run / name).read_text() for name in mine] == ["mine"] * len(mine)


def test_a_persons_file_in_the_way_is_renamed(rows, tmp_path, caplog):
    """The manifest does not list it, so it is not of the old run, whatever its name."""
    run = tmp_path / "run"
    with RunFolder(run) as folder:
        folder.write("log.txt", "old")
    (run / "result.json").write_text("mine")
    (run / "result.old.json").write_text("mine too")
    with RunFolder(run, overwrite=True) as folder:
        folder.write("result.json", "new")
    assert (run / "result.json").read_text() == "new"
    assert (run / "result.old.json").read_text() == "mine too"
    assert (run / "result.old2.json").read_text() == "mine"
    assert "result.json is kept as result.old2.json" in caplog.text


def test_a_manifest_of_another_program_is_kept(tmp_path):
    """Somebody may put files into the folder of a run that is still being made."""
    with RunFolder(tmp_path / "run") as folder:
        folder.write("log.txt", "a run")
        (tmp_path / "run" / MANIFEST).write_text("theirs")
    assert (tmp_path / "run" / "manifest.old.json").read_text() == "theirs"


def test_every_review_is_kept(tmp_path):
    for text in ("first", "second", "third"):
        with RunFolder(tmp_path / "run", overwrite=True) as folder:
            folder.write("log.txt", "a run")
        (tmp_path / "run" / "review.json").write_text(text)
    assert (tmp_path / "run" / "review.old.json").read_text() == "first"
    assert (tmp_path / "run" / "review.old2.json").read_text() == "second"


def test_a_file_that_is_not_in_the_list_is_a_bug(tmp_path):
    """What `--overwrite` could not remove must not be written."""
    with pytest.raises(ValueError, match="not in the list"), RunFolder(tmp_path / "run") as folder:
        folder.write("../log.txt", "")


def test_a_run_that_is_moved_only_in_part_is_not_opened(tmp_path, rows):
    """A kill in these milliseconds leaves a mixture, which must not be read as a run."""
    run = tmp_path / "run"
    assert cluster_by_pac(rows, "-k", 2, "--out", run).exit_code == 0
    unfinished(run).mkdir()
    shutil.copy(run / MANIFEST, unfinished(run))
    result = probagg("predict", run, rows)
    assert (result.exit_code, "is not finished" in result.output) == (2, True)
    with pytest.raises(TypeError), RunFolder(run, overwrite=True):
        raise TypeError  # it is put in place on entering, before any work
    assert probagg("predict", run, rows).exit_code == 0
