import signal
import sys

import numpy as np
import pytest
import torch
from served import Client, start
from sklearn.datasets import load_digits, make_blobs

from probagg.data import photo
from probagg.dpac import start as classifier_start


def pytest_configure():
    """Let Ctrl-C end the tests' processes, also where the shell started them in the background."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def digits():
    return load_digits(return_X_y=True)


@pytest.fixture(scope="session")
def blobs():
    """Three clusters that overlap a little."""
    X, y = make_blobs(300, 5, centers=3, cluster_std=2.0, random_state=0)
    return X, y


@pytest.fixture
def two_clusters():
    """Twenty rows around (0, 0), twenty around (10, 0), and one far above the first."""
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(0, 1, (20, 2)), rng.normal((10, 0), 1, (20, 2)), [[0, 40]]])
    labels = np.repeat([0, 1, 0], [20, 20, 1])
    return X, labels


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(0)


@pytest.fixture
def quick_heads(monkeypatch):
    """Fit heads in a few steps, where it does not matter how well they fit."""
    monkeypatch.setattr(classifier_start, "STEPS", 100)
    monkeypatch.setattr(classifier_start, "LINEAR_STEPS", 100)


@pytest.fixture(scope="session", autouse=True)
def feature_cache(tmp_path_factory):
    """Tests neither read nor fill the user's own cache of features."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PROBAGG_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def client(served_run):
    """A client of the review server; `served_run`, a fixture of the test's file, is reviewed."""
    server = start(served_run)
    yield Client(server)
    server.shutdown()
    server.server_close()


@pytest.fixture
def without_packages(monkeypatch):
    """As if pillow-heif were not installed."""
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    photo.readable_suffixes.cache_clear()
    photo._formats.cache_clear()
    yield
    monkeypatch.undo()
    photo.readable_suffixes.cache_clear()
    photo._formats.cache_clear()


@pytest.fixture
def hangups():
    """SIGHUP ends this process, also where the tests run under nohup and would ignore it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)
