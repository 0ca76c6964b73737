"""`probagg.cluster` and `Run`: the product from Python."""

import json
import time
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from commands import cluster as cluster_command
from commands import probagg as command
from commands import reseal
from sklearn.datasets import load_digits

import probagg
from probagg.app.review import Review
from probagg.app.run.contents import write_review
from probagg.app.run.folder import MANIFEST, RunFolder
from probagg.errors import InputError, NoData

TIMED = {"log.txt", "env.json", "result.json"}  # seconds and time stamps; result is compared below


@pytest.fixture(scope="module")
def matrix(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "rows.csv"
    X, y = load_digits(return_X_y=True)
    pd.DataFrame(X[:400], columns=[f"p{j}" for j in range(64)]).to_csv(path, index=False)
    return path, X[:400], y[:400]


@pytest.fixture(scope="module")
def run(matrix, tmp_path_factory):
    path, _, y = matrix
    out = tmp_path_factory.mktemp("runs") / "rows"
    return probagg.cluster(path, 10, out=out, labels=y, report=False)


def files_of(run):
    return sorted(str(p.relative_to(run)) for p in run.rglob("*") if p.is_file())


def assert_same_runs(first, second):
    assert files_of(first) == files_of(second)
    for name in set(files_of(first)) - TIMED - {MANIFEST, "metrics.jsonl", "report.html"}:
        assert (first / name).read_bytes() == (second / name).read_bytes(), name
    results = [json.loads((run / "result.json").read_text()) for run in (first, second)]
    for result in results:
        for timed in ("run", "seconds", "embedding_seconds", "k_seconds"):
            result.pop(timed, None)
    assert results[0] == results[1]


def test_the_command_and_the_function_write_the_same_run(matrix, tmp_path):
    path, _, y = matrix
    truth = tmp_path / "truth.csv"
    truth.write_text("\n".join(map(str, y)))
    made = cluster_command(path, "-k", 10, "--out", tmp_path / "a", "--labels", truth, "--m", 1.05)
    assert made.exit_code == 0, made.output
    probagg.cluster(path, 10, out=tmp_path / "b", labels=truth, m=1.05, report=False)
    assert_same_runs(tmp_path / "a", tmp_path / "b")


def test_a_run_shows_its_table_and_its_result(run, matrix):
    _, X, y = matrix
    table = run.assignments
    assert list(table) == [
        "row",
        "cluster",
        "probability",
        "second_cluster",
        "second_probability",
        "distance",
        "flag",
    ]
    assert table["cluster"].dtype == np.int64
    assert len(table["cluster"]) == len(X)
    assert table.to_pandas()["cluster"].tolist() == table["cluster"].tolist()
    assert run.result["acc"] == probagg.clustering_accuracy(y, table["cluster"])
    assert run.embeddings is None
    assert "400 rows in 10 clusters by PAC" in repr(run)
    assert repr(probagg.open_run(run.path)) == repr(run)


def test_rows_of_the_run_are_predicted_as_they_were_clustered(run, matrix):
    path, X, _ = matrix
    for source in (path, pd.DataFrame(X, columns=[f"p{j}" for j in range(64)])):
        again = run.predict(source)
        np.testing.assert_array_equal(again["cluster"], run.assignments["cluster"])


def test_labels_may_be_a_sequence_a_mapping_or_a_file(run, matrix, tmp_path):
    _, _, y = matrix
    file = tmp_path / "truth.csv"
    file.write_text("\n".join(map(str, y)))
    named = {str(row): label for row, label in enumerate(y)}
    for labels in (None, y, named, file):
        assert run.evaluate(labels)["acc"] == pytest.approx(run.result["acc"])
    half = {str(row): label for row, label in enumerate(y[:200])}
    assert run.evaluate(half)["n_labelled"] == 200
    with pytest.raises(InputError, match="3 entries for 400 samples"):
        run.evaluate([1, 2, 3])


@pytest.mark.parametrize("kind", ["array", "dataset", "paths"])
def test_images_may_be_an_array_a_dataset_or_a_list_of_paths(tmp_path, kind):
    import torch
    from PIL import Image

    images = np.round(load_digits().images[:60] * 255 / 16).astype(np.uint8)
    source = images
    if kind == "dataset":
        rows = torch.from_numpy(images)[:, None].float() / 255
        source = torch.utils.data.TensorDataset(rows, torch.zeros(len(rows)))
    elif kind == "paths":
        source = [tmp_path / f"{i}.png" for i in range(len(images))]
        for path, image in zip(source, images, strict=True):
            Image.fromarray(image).save(path)
    short = ["pretrain.epochs=1", "cluster.epochs=1", "self_label.epochs=0"]
    run = probagg.cluster(
        source, 3, method="dpac", recipe="digits", settings=short, out=tmp_path / "run"
    )
    assert len(run.assignments) == 60
    assert run.embeddings.shape[0] == 60
    np.testing.assert_array_equal(run.predict(source)["cluster"], run.assignments["cluster"])
    if kind == "paths":  # one photo is read at the size and with the channels of the recipe
        alone = run.predict(source[7])
        assert alone["cluster"].tolist() == run.assignments["cluster"][7:8].tolist()
        np.testing.assert_allclose(
            alone["probability"], run.assignments["probability"][7:8], atol=1e-5
        )
    assert run.report().exists()


def test_a_review_is_applied_wherever_the_run_is_read(run, matrix, tmp_path):
    path, _, _ = matrix
    out = tmp_path / "run"
    made = probagg.cluster(path, 4, out=out, report=False)
    before = made.assignments["cluster"]
    review = {"format": "probagg.review/2", "names": {"1": "ones"}, "merged": {"3": 1}}
    review["moved"] = {"0": 2}
    (out / "review.json").write_text(json.dumps(review))
    expected = np.where(before == 3, 1, before)
    expected[0] = 2
    np.testing.assert_array_equal(made.assignments["cluster"], expected)
    # predict adds the probabilities of merged clusters, of which the table has only two: they can
    # differ where the first one is below a half.
    decided = made.assignments["probability"] > 0.5
    again = made.predict(path)
    np.testing.assert_array_equal(again["cluster"][decided], expected[decided])
    assert again["cluster"][0] == 2
    assert decided.mean() > 0.9
    assert set(made.assignments["name"]) == {"", "ones"}


def test_rows_of_another_width_than_the_run_are_refused(matrix, tmp_path):
    X = matrix[1]
    run = probagg.cluster(X, 3, out=tmp_path / "run", report=False)
    with pytest.raises(NoData, match=f"gives 1 columns, but the model in .* takes {X.shape[1]}"):
        run.predict(X[:, :1])


def test_the_options_of_another_method_are_refused(tmp_path, matrix):
    with pytest.raises(InputError, match="recipe: not used by method pac"):
        probagg.cluster(matrix[0], 3, recipe="digits", out=tmp_path / "run")
    with pytest.raises(InputError, match="at least 1 is needed"):
        probagg.cluster(matrix[0], 0, out=tmp_path / "run")
    with pytest.raises(InputError, match="a whole number, a range"):
        probagg.cluster(matrix[0], 2.5, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_finished_run_is_kept_unless_told_otherwise(run, matrix):
    with pytest.raises(RuntimeError, match="overwrite=True"):
        probagg.cluster(matrix[0], 3, out=run.path)


def test_runs_of_one_second_have_folders_of_their_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(time, "strftime", lambda *_: "20260102-030405")
    names = [probagg.cluster(np.eye(9), 2, report=False).path.name for _ in range(3)]
    assert names == [f"ndarray-20260102-030405{end}" for end in ("", "-2", "-3")]


def test_a_folder_that_is_not_a_run_says_so(tmp_path):
    with pytest.raises(NoData, match="is not a folder"):
        probagg.open_run(tmp_path / "nowhere")
    with pytest.raises(NoData, match="holds no run"):
        probagg.open_run(tmp_path)


def test_messages_go_to_the_log_only_when_wanted(matrix, tmp_path, caplog, capsys):
    with caplog.at_level("INFO", "probagg"), warnings.catch_warnings():
        probagg.cluster(matrix[0], 3, out=tmp_path / "a", report=False)
        assert not caplog.records
        probagg.cluster(matrix[0], 3, out=tmp_path / "b", report=False, verbose=1)
    assert any("400 rows in 3 clusters" in record.message for record in caplog.records)
    assert capsys.readouterr().out == ""


def test_numbers_of_numpy_are_recorded_as_numbers(tmp_path, rng):
    numbers = {"m": np.float32(1.02), "n_init": np.int64(2), "random_state": np.int64(3)}
    X = rng.standard_normal((60, 3))
    probagg.cluster(X, np.int64(2), out=tmp_path / "run", report=False, **numbers)
    config = (tmp_path / "run" / "config.toml").read_text()
    assert "n_init = 2\n" in config
    assert "seed = 3\n" in config


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        (pl.LazyFrame({"a": [1.0, 2.0]}), {}, r"Pass source.collect\(\)"),
        ({"a": [1.0, 2.0]}, {}, r"Pass pandas.DataFrame\(source\)"),
        ([[1.0, 2.0], [3.0, 4.0]], {}, "Pass rows of numbers as an array"),
        (pd.DataFrame({"a": [1.0, 2.0]}), {"drop": "a"}, r"a list is needed: \['a'\]"),
        (np.eye(3), {"random_state": np.random.RandomState(0)}, "a whole number is needed"),
    ],
)
def test_what_cannot_be_used_is_an_error_with_what_to_pass(tmp_path, source, options, message):
    with pytest.raises(InputError, match=message):
        probagg.cluster(source, 2, out=tmp_path / "run", **options)
    assert not list(tmp_path.iterdir())


def test_a_bug_is_a_traceback_and_not_a_tidy_error(matrix, tmp_path, monkeypatch):
    def fail(*_, **__):
        raise ValueError("from the inside")

    monkeypatch.setattr("probagg.app.run.methods.ByPac.run", fail)
    result = command("cluster", matrix[0], "-k", 3, "--out", tmp_path / "run")
    assert result.exit_code == 1
    assert "This is a bug in probagg" in result.output
    assert "Traceback" in result.output


def test_a_lock_goes_even_where_sealing_fails(tmp_path, monkeypatch):
    monkeypatch.setattr(RunFolder, "_seal", lambda self: 1 / 0)
    with pytest.raises(ZeroDivisionError), RunFolder(tmp_path / "run") as folder:
        folder.write("log.txt", "x")
    assert not (tmp_path / "run").exists()


def test_evaluation_without_any_known_class_says_what_to_give(tmp_path, matrix):
    run = probagg.cluster(matrix[1], 3, out=tmp_path / "run", report=False)
    with pytest.raises(NoData, match=r"No class is known of any .* Give labels that name them"):
        run.evaluate([None] * len(run.assignments))


def test_the_table_of_a_run_is_read_once_and_again_after_a_change(tmp_path, matrix):
    run = probagg.cluster(matrix[1], 3, out=tmp_path / "run", report=False)
    first = run.assignments
    assert run.assignments is first
    write_review(run.path, Review(names={0: "cats"}))
    assert run.assignments.cluster_names == {0: "cats"}
    assert run.assignments is run.assignments
    path = run.path / "assignments.csv"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    reseal(run.path)
    assert len(run.assignments) == len(first) - 1
