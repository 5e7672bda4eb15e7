"""Wrong arguments on the command line, and the sentences that explain them."""

import os
import subprocess
import sys

import jax
import numpy as np
import pytest

from nrjax.cli import main
from tests.problems import small_data

COMMANDS = {
    "whitehouse2022": "--data own.npz --target y --task logistic",
    "ligett2017": "--data own.npz --target y --task logistic",
    "skellam_counts": "--data counts.csv",
    "regression": "--data own.npz --target y",
}

WRONG = {  # by study: argument, its value, and words of the message
    "whitehouse2022": [
        ("trials", "0", "trials must be an integer, at least 1"),
        ("trials", "4294967297", "at least 1 and at most 4294967296"),
        ("seed", "-1", "seed must be an integer, at least 0"),
        ("seed", "4294967296", "seed must be an integer"),
        ("chunk", "0", "chunk must be an integer, at least 1"),
        ("out", "", "--out must be not empty"),
        ("out", "own.npz", "own.npz is a file: choose a folder"),
        ("rows", "0", "rows must be at least 1"),
        ("rows", "301", "rows must be at most 300, the rows of "),
        ("data", "nothing", "must be one of 'flights', 'kdd99'"),
        ("data", "gone.csv", "There is no file "),
        ("data", "counts.csv", "target must be a column of "),
        ("target", "z", "target must be an array of "),
        ("task", "logistic logistic", "must be without repetition"),
        ("mechanism", None, "mechanism must be at least one value"),
        ("regularisation", "nan", "regularisation must be positive and finite"),
        ("target-loss", "0.001", "--target-loss must be above 0.593687"),
        ("target-loss", "nan", "--target-loss must be above 0.593687"),
        ("target-loss", "0.7 0.7", "--target-loss must be one value"),
        ("test-epsilon", "0", "--test-epsilon must be positive and finite"),
        ("lowest-epsilon", "nan", "must be between 0 and --highest-epsilon = 20.0"),
        ("lowest-epsilon", "0.1", "--lowest-epsilon must be above 0.14"),
        ("highest-epsilon", "0.01", "must be above the first level of the grid"),
        ("levels", "100000000000000000", "at least 1 and at most 10000000"),
        ("most-trials", "5", "--most-trials must be left out without --until-se"),
        ("workers", "0", "workers must be at least 1"),
        ("workers", "2 --scheduler tcp://a:1", "must be left out with --workers"),
    ],
    "ligett2017": [("alpha", "0.1 0.1000000001", "must be apart by six digits")],
    "regression": [
        ("data", "flights", "nrjax run whitehouse2022 --data flights"),
        ("data", "gone.csv", "There is no file "),
        ("data", "counts.csv", "target must be a column of "),
        ("bounds", "x0", "bounds must be of the form COLUMN=LOW:HIGH"),
        ("bounds", "x0=0:1 x0=0:2", "bounds must be stated once for 'x0' (got 'x0=0:2')"),
        ("bounds", "x0=1:0", "bounds of 'x0' must be (LOW, HIGH) with LOW < HIGH"),
        ("bounds", "x0=0:1", "given for the columns of numbers x1, x2"),
        ("task", "ridge", "For two labels use task 'logistic' (--task logistic)"),
        ("target-loss", "0.001", "--target-loss must be above 0.484227"),
        ("target-fraction", "1", "--target-fraction must be strictly between 0 and 1"),
        ("held-out", "0.001", "--held-out must be such that both parts have rows"),
        ("data", "x.json", "(got 'x.json')"),
        ("lowest-epsilon", "30", "must be between 0 and --highest-epsilon = 20.0"),
    ],
    "skellam_counts": [
        ("lowest-deviation", "1e9", "--highest-deviation must be above the last level, 1e+09"),
    ],
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    x, y = small_data()
    np.savez(tmp_path / "own.npz", x=x, y=y)
    (tmp_path / "counts.csv").write_text("item,count\na,500\nb,300\nc,100\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refusal(capsys, arguments):
    """Return the sentence, or the list of problems, with which the command refuses a call."""
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("nrjax: error: ")
    assert error.count("\n") == 1 or " problems:\n* " in error
    return error


@pytest.mark.parametrize(
    ("study", "argument", "value", "words"),
    [(study, *row) for study, rows in WRONG.items() for row in rows],
)
def test_a_bad_value_is_named_and_leaves_nothing(folder, capsys, study, argument, value, words):
    before = sorted(folder.iterdir())
    given = [] if value is None else value.split(" ")
    call = ["run", study, *COMMANDS[study].split(), "--out", "out", f"--{argument}", *given]
    assert words in refusal(capsys, call)
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "whitehouse2022", "--out="], "--out must be not empty"),
        (["resume", ""], "resume must be not empty"),
        (["data", "--data-dir", ""], "--data-dir must be not empty"),
        (["data", "--fetch", "nothing"], "name must be 'kdd99'"),
        (["rogers2023", "--out", "x"], "rogers2023 is a study: nrjax run rogers2023 --out"),
        *(
            ([one, "nowhere"], "folder must be the folder of a run")
            for one in ("resume", "plot", "summary")
        ),
        (["plot", "own.npz"], "folder must be the folder of a run"),
        (["rum", "--data", "counts.csv"], "(got 'rum'). Did you mean 'run'?"),
        (["run", "--data", "counts.csv", "--target", "Count"], "Did you mean 'count'?"),
        (["data", "counts.csv", "--write-bounds", "no/b.toml"], "in a folder that can be written"),
        (["run", "nothing"], "study must be one of ('regression', "),
        (["run", "whitehous2022"], "Did you mean 'whitehouse2022'?"),
        (["run", "mine.csv"], "nrjax run --data mine.csv --target COLUMN"),
        (["run", "--data", "counts.csv", "--target", "item"], "must be two labels, or numbers"),
        (["run", "--data=counts.csv", "--target=count"], "given for the columns of numbers count"),
        (["audit", "."], "A folder is no study: give the study's file"),
        (["run", "my_study.py", "--out", "x"], "study must be a file, and there"),
    ],
)
def test_a_bad_call_is_answered_in_a_sentence(folder, capsys, arguments, words):
    before = sorted(folder.iterdir())
    assert words in refusal(capsys, arguments)
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        ("", "nrjax --help"),
        ("run", "nrjax --help"),
        ("run whitehouse2022", "run whitehouse2022 --help"),
        ("run whitehouse2022 --out x --mechanism gauss", "run whitehouse2022 --help"),
        ("run whitehouse2022 --out x --trials many", "run whitehouse2022 --help"),
        ("run rogers2023 --out x --smalest 1", "run rogers2023 --help"),
        ("resume x --trails 1", "resume --help"),
    ],
)
def test_calls_that_cannot_be_parsed_point_to_the_help(capsys, arguments, hint):
    with pytest.raises(SystemExit) as stop:
        main(arguments.split())
    assert stop.value.code == 2
    assert hint in capsys.readouterr().err


@pytest.mark.parametrize(
    "trouble", [RuntimeError("Unable to initialize backend"), AssertionError()]
)
def test_devices_that_jax_lacks_are_named(folder, capsys, monkeypatch, trouble):
    """JAX 0.10 raises these for an unknown platform, and for cuda without a GPU."""

    def none_such():
        raise trouble

    monkeypatch.setattr(jax, "local_devices", none_such)
    call = ["run", "whitehouse2022", *COMMANDS["whitehouse2022"].split(), "--out", "out"]
    error = refusal(capsys, call)
    assert "JAX_PLATFORMS must be unset, or platforms that JAX can start" in error
    assert str(trouble) in error
    assert not (folder / "out").exists()


def process(*arguments, stdout=subprocess.PIPE, **variables):
    """Run Python in an environment that has only these variables."""
    bare = {name: os.environ[name] for name in ("HOME", "PATH")}
    return subprocess.run(
        [sys.executable, *arguments],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        timeout=120,
        check=False,
        env=bare | {"PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))} | variables,
    )


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("JAX_ENABLE_X64", "maybe", "invalid truth value 'maybe' for environment 'JAX_ENABLE_X64'"),
        ("JAX_NUM_CPU_DEVICES", "abc", 'Invalid value "abc" for JAX flag jax_num_cpu_devices'),
        ("MPLBACKEND", "nonsense", "MPLBACKEND must be unset, or a backend of "),
    ],
)
def test_a_variable_that_cannot_be_read_is_named_before_any_work(folder, name, value, words):
    call = f"run whitehouse2022 {COMMANDS['whitehouse2022']} --out out"
    ended = process("-m", "nrjax", *call.split(), **{name: value})
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith(f"nrjax: error: {words}")
    assert ended.stderr.count("\n") == 1
    assert not (folder / "out").exists()


OWN = """
import jax.numpy as jnp, nrjax
def score(release):
    return -jnp.abs(release - 3.0)
trial = nrjax.laplace(3.0, 1.0).until(score, at_least=-1.0, levels=(0.1, 1.0, 3))
study = nrjax.Study("own", {"laplace": trial})
"""


@pytest.mark.parametrize(
    "call",
    [
        "run my_study.py --out out",
        *(
            pytest.param(call, marks=pytest.mark.long)
            for call in (
                "run whitehouse2022 --out out",
                "audit my_study.py",
                "fingerprint my_study.py",
                "choose mean --data own.csv --column a --bounds a=0:1 --error 0.1",
                "design 0.1 1",
            )
        ),
    ],
)
def test_a_platform_that_cannot_start_is_named_by_every_command(folder, call):
    (folder / "my_study.py").write_text(OWN)
    (folder / "own.csv").write_text("a\n0.1\n0.9\n")
    ended = process("-m", "nrjax", *call.split(), JAX_PLATFORMS="nonsense")
    assert ended.returncode == 2
    words = "nrjax: error: JAX_PLATFORMS must be unset, or platforms that JAX can start"
    assert ended.stderr.startswith(words)
    assert ended.stderr.count("\n") == 1
    assert not (folder / "out").exists()


@pytest.mark.skipif(os.name != "posix", reason="needs a pseudo-terminal")
def test_a_terminal_of_any_encoding_shows_the_report(folder):
    """`nrjax data` prints a table, whose lines Latin-1 lacks."""
    import pty

    main_end, terminal = pty.openpty()
    bare = {name: os.environ[name] for name in ("HOME", "PATH")}
    path = {"PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path)), "TERM": "xterm"}
    ended = subprocess.run(
        [sys.executable, "-m", "nrjax", "data", "--data-dir", "gr\u00f6\u03b5"],
        stdout=terminal,
        stderr=subprocess.PIPE,
        env=bare | path | {"PYTHONIOENCODING": "latin-1", "COLUMNS": "200"},
        timeout=120,
        check=False,
    )
    os.close(terminal)
    os.close(main_end)
    assert (ended.returncode, ended.stderr) == (0, b"")


BEFORE_IMPORT = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "{module}":
            {trouble}
sys.meta_path.insert(0, Finder())
from nrjax.__main__ import main
sys.exit(main())
"""
ABSENT = "raise ModuleNotFoundError(name=name)"
INTERRUPT = "os.kill(os.getpid(), signal.SIGINT)"


@pytest.mark.parametrize(
    ("module", "trouble", "status", "words"),
    [
        ("rich", ABSENT, 2, 'error: the command nrjax needs rich: run pip install ".[studies]" in'),
        ("jax", INTERRUPT, 130, "interrupted\n"),
    ],
)
def test_an_error_during_the_imports_is_a_sentence(module, trouble, status, words):
    ended = process("-c", BEFORE_IMPORT.format(module=module, trouble=trouble))
    assert (ended.returncode, ended.stderr.count("\n")) == (status, 1)
    assert ended.stderr.startswith(f"nrjax: {words}")


FULL = "nrjax: error: No space left on device\n"


@pytest.mark.parametrize("unbuffered", ["", pytest.param("1", marks=pytest.mark.long)])
def test_output_that_cannot_be_printed(unbuffered):
    """A closed pipe is not an error, and Python's own flush adds nothing."""
    call = ("-m", "nrjax", "--help")
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as closed:
        ended = process(*call, stdout=closed, PYTHONUNBUFFERED=unbuffered)
    assert (ended.returncode, ended.stderr) == (1, "")
    if os.path.exists("/dev/full"):
        with open("/dev/full", "w") as disk:
            ended = process(*call, stdout=disk, PYTHONUNBUFFERED=unbuffered)
        assert (ended.returncode, ended.stderr) == (2, FULL)


def test_a_scheduler_that_is_not_there_is_named(folder, capsys, monkeypatch):
    distributed = pytest.importorskip("distributed")

    def client(address, timeout):
        raise OSError(f"timed out after {timeout}")

    monkeypatch.setattr(distributed, "Client", client)
    call = f"run whitehouse2022 {COMMANDS['whitehouse2022']} --out out --scheduler tcp://gone:1"
    error = refusal(capsys, call.split())
    assert "scheduler must be the address of a Dask scheduler" in error
    assert not (folder / "out").exists()


def test_a_cluster_needs_its_extra(folder, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    call = f"run whitehouse2022 {COMMANDS['whitehouse2022']} --out out --workers 2"
    assert 'pip install ".[cluster]"' in refusal(capsys, call.split())
    assert not (folder / "out").exists()
