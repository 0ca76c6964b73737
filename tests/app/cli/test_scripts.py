"""probagg bench NAME: scripts of a clone."""

import ast
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from commands import probagg

import probagg as package
from probagg.app.cli import scripts
from probagg.app.cli.scripts import FOLDERS, MARK, Script

ROOT = Path(__file__).parents[3]
ECHO = '''"""Say what the script was called with.

More of the docstring.
"""
import os
import sys

import helper

if __name__ == "__main__":
    print(helper.NAME, sys.argv[1:], os.environ["PYTHONPATH"].split(os.pathsep)[1:])
    sys.exit(7)
'''
WAIT = '''"""Wait for a signal."""
import signal
import sys
import time


def end(number, frame):
    print("cleaned up after", signal.Signals(number).name, flush=True)
    sys.exit(9)


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    print("waiting", flush=True)
    time.sleep(60)
'''


@pytest.fixture
def clone(tmp_path):
    """A small clone with two scripts, a module beside them and one for all."""
    root = tmp_path / "clone"
    for folder in FOLDERS:
        (root / "benchmarks" / folder).mkdir(parents=True)
    (root / MARK).touch()
    (root / "benchmarks" / "studies" / "echo.py").write_text(ECHO)
    (root / "benchmarks" / "paper" / "wait.py").write_text(WAIT)
    (root / "benchmarks" / "paper" / "methods.py").write_text('"""No script."""\n')
    (root / "benchmarks" / "helper.py").write_text("NAME = 'helper of the clone'\n")
    return root


@pytest.fixture
def no_clone(monkeypatch):
    """As if neither the package nor the current folder were in a clone."""
    monkeypatch.setattr(scripts, "MARK", Path("not", "there"))


@pytest.fixture(scope="session")
def installed(tmp_path_factory):
    """A folder with a copy of the package, as pip installs it: not in a clone."""
    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(
        Path(package.__file__).parent, folder / "probagg", ignore=shutil.ignore_patterns("*.pyc")
    )
    return folder


def command(installed, *arguments):
    """The console script of the installed copy, for subprocess."""
    return {
        "args": [sys.executable, "-m", "probagg", "bench", *arguments],
        "env": os.environ | {"PYTHONPATH": str(installed)},
        "text": True,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
    }


def test_a_script_gets_its_arguments_unchanged_and_returns_its_exit_code(clone, monkeypatch, capfd):
    monkeypatch.setenv("PYTHONPATH", "mine")
    code = Script(clone / "benchmarks/studies/echo.py").run(["--seeds", "0", "1", "-k", "a b"])
    assert code == 7
    said = "helper of the clone ['--seeds', '0', '1', '-k', 'a b'] ['mine']\n"
    assert capfd.readouterr().out == said


def test_modules_of_the_current_folder_do_not_replace_those_of_the_clone(
    clone, tmp_path, monkeypatch, capfd
):
    (tmp_path / "helper.py").write_text("NAME = 'helper of the current folder'\n")
    (tmp_path / "studies.py").write_text("")
    monkeypatch.chdir(tmp_path)
    assert Script(clone / "benchmarks/studies/echo.py").run([]) == 7
    assert "helper of the clone" in capfd.readouterr().out


def test_a_script_that_a_signal_kills_ends_with_the_shells_exit_code(clone):
    path = clone / "benchmarks" / "speed" / "dies.py"
    path.write_text("import os\nif __name__ == '__main__':\n    os.kill(os.getpid(), 9)\n")
    assert Script(path).run([]) == 128 + 9


def test_an_installed_package_finds_the_clone_around_the_current_folder(clone, installed):
    below = clone / "docs" / "deep"
    below.mkdir(parents=True)
    done = subprocess.run(**command(installed, "echo", "--help", "--seeds"), cwd=below)
    assert done.returncode == 7, done.stderr
    assert "['--help', '--seeds']" in done.stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_script_in_its_own_way(clone, installed, number):
    """A terminal sends Ctrl-C to all processes of a command; kill sends SIGTERM to one."""
    with subprocess.Popen(
        **command(installed, "wait"), cwd=clone, start_new_session=True
    ) as process:
        assert process.stdout.readline() == "waiting\n"
        if number == signal.SIGINT:
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)
        said, errors = process.communicate(timeout=30)
    assert said == f"cleaned up after {number.name}\n"
    assert (process.returncode, errors) == (9, "")


def test_the_list_has_every_script_with_the_first_line_of_its_docstring(clone, monkeypatch):
    monkeypatch.setattr(scripts, "_starts", lambda: iter([clone]))
    result = probagg("bench", "--list")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "Tables and figures of the paper (benchmarks/paper):",
        "  wait  Wait for a signal.",
        "Time and memory (benchmarks/speed):",
        "Studies of our own (benchmarks/studies):",
        "  echo  Say what the script was called with.",
    ]


def test_every_script_of_this_clone_has_a_summary_and_a_name_of_its_own():
    paths = [p for folder in FOLDERS for p in (ROOT / "benchmarks" / folder).glob("*.py")]
    stems = [path.stem for path in paths if "__main__" in path.read_text()]
    assert sorted(stems) == sorted(scripts.scripts())
    assert all(script.summary() for script in scripts.scripts().values())


@pytest.mark.parametrize("name", sorted(scripts.scripts()))
def test_no_script_has_the_name_of_a_data_set(name):
    assert name not in scripts.ALL_NAMES


@pytest.mark.parametrize("words", [("table2",), ("table2", "--size", "small"), ("--list",)])
def test_outside_of_a_clone_the_error_says_where_the_scripts_are(no_clone, words):
    result = probagg("bench", *words)
    assert result.exit_code == 3
    assert result.stderr.count("\n") == 1
    assert "in the repository of probagg, not in the installed package" in result.stderr
    assert f"probagg bench {words[0]}." in result.stderr


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("tabel2",), 3, "'tabel2' is not a file, a folder or a known data set, nor a script of"),
        (("tabel2", "--size", "small"), 3, "Did you mean 'table2'?"),
        (("digit", "-k", 10), 3, "Did you mean 'digits'?"),
        (("--seeds", 3, "table2"), 2, "table2 is a script: write its name before the options."),
        (("digits", "--size", "small"), 2, "No such option: --size"),
        (("digits", "pendigits"), 2, "unexpected extra argument"),
        (("-k", 10, "digits", "--only", "pac"), 2, "No such option: --only"),
    ],
)
def test_mistakes_are_one_clear_line(words, code, says):
    result = probagg("bench", *words)
    assert result.exit_code == code
    assert says in result.stderr
    assert "Traceback" not in result.stderr


def test_a_mistake_in_a_scripts_options_is_the_scripts_to_report(capfd):
    result = probagg("bench", "table2", "--size", "tiny", "--only", "nonsense")
    assert result.exit_code == 1
    assert "--only has 'nonsense'; possible are" in capfd.readouterr().err


def test_a_path_to_data_with_the_name_of_a_script_is_data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scale").mkdir()
    result = probagg("bench", "./scale", "-k", 2)
    assert result.exit_code == 3
    assert "scale" in result.stderr


def test_the_help_has_an_example_of_both_uses():
    said = probagg("bench", "--help").stdout
    assert "probagg bench photos/ -k 10" in said
    assert "probagg bench table2 --size small" in said


SCRIPTS = [
    path for path in sorted((ROOT / "benchmarks").glob("*/*.py")) if "__main__" in path.read_text()
]
OURS = {"paper", "speed", "studies", "record", "lab_data"}  # modules in benchmarks/
PLACE = "sys.path.insert(0, str(Path(__file__).parents[1]))"


def helped(path):
    """What a script prints with --help where nothing says where benchmarks/ is."""
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PROBAGG_DATA")}
    env["PYTHONPATH"] = str(ROOT / "src")
    command = [sys.executable, path, "--help"]
    return subprocess.run(command, cwd=path.anchor, env=env, capture_output=True, text=True)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_says_where_its_modules_are_before_it_imports_them(path):
    """So that `python benchmarks/paper/table2.py` works as `probagg bench table2` does."""
    tree = ast.parse(path.read_text())
    ours = [
        node.lineno
        for node in ast.walk(tree)
        if (isinstance(node, ast.ImportFrom) and node.module.partition(".")[0] in OURS)
        or (isinstance(node, ast.Import) and {a.name.partition(".")[0] for a in node.names} & OURS)
    ]
    said = [node.lineno for node in tree.body if PLACE in ast.unparse(node)]
    assert not ours or (said and said[0] < min(ours))


def test_a_script_shows_its_help_without_the_command_line():
    done = helped(ROOT / "benchmarks" / "speed" / "scale.py")
    assert (done.returncode, done.stdout[:15]) == (0, "usage: scale.py"), done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_every_script_shows_its_help_without_the_command_line(path):
    done = helped(path)
    assert (done.returncode, done.stdout[:6]) == (0, "usage:"), done.stderr
