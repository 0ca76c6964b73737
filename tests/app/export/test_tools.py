"""The exports and sources against the real packages, each where it is installed.

`make test-tools` installs all of them in an environment of its own.
"""

import json

import numpy as np
import pytest
from PIL import Image

import probagg
from probagg import PAC
from probagg.data.photo import open_photo
from probagg.errors import NoData

# Label Studio


def test_label_studio_accepts_every_task_and_prediction(run, tmp_path):
    interface = pytest.importorskip("label_studio_sdk.label_interface")
    out, table, names = (
        run.export("label-studio", tmp_path / "ls"),
        run.assignments,
        run.cluster_names,
    )
    labels = interface.LabelInterface((out / "config.xml").read_text())
    labels.validate()
    tasks = json.loads((out / "tasks.json").read_text())
    for row, task in enumerate(tasks):
        (prediction,) = task.pop("predictions")
        assert labels.validate_task(task)
        assert labels.validate_prediction(prediction, return_errors=True) == []
        (region,) = prediction["result"]
        assert region["value"]["choices"] == [names[table.cluster[row]]]
        assert prediction["score"] == pytest.approx(table.probability[row], abs=1e-6)
    assert set(labels.get_control("cluster").labels) >= {names[k] for k in table.cluster}


# AnnData


@pytest.fixture
def cells(blobs):
    """Sixty cells with names, sparse counts, and the types of the cells."""
    anndata = pytest.importorskip("anndata")
    import pandas as pd
    import scipy.sparse as sp

    X = np.round(np.clip(blobs[0][:60], 0, None)).astype(np.float32)
    obs = pd.DataFrame({"type": blobs[1][:60]}, index=[f"cell-{i}" for i in range(60)])
    var = pd.DataFrame(index=list("vwxyz"))
    return anndata.AnnData(sp.csr_matrix(X), obs=obs, var=var)


def test_sparse_cells_are_clustered_by_name(cells, tmp_path):
    cells.write_h5ad(tmp_path / "cells.h5ad")
    # Sparse rows are not smoothed.
    options = {"report": False, "labels": cells.obs["type"], "smooth": False}
    expected = probagg.cluster(cells.X.toarray(), 3, out=tmp_path / "array", **options)
    for source in (cells, tmp_path / "cells.h5ad"):
        out = tmp_path / type(source).__name__
        run = probagg.cluster(source, 3, out=out, **options)
        table = run.assignments
        assert table.names == cells.obs_names.tolist()
        np.testing.assert_array_equal(table.cluster, expected.assignments.cluster)
        np.testing.assert_array_equal(run.predict(source).cluster, table.cluster)


def test_principal_components_go_before_x(cells, tmp_path):
    cells.obsm["X_pca"] = cells.X.toarray()[:, :2]
    run = probagg.cluster(cells, 3, out=tmp_path / "run", report=False)
    expected = probagg.cluster(cells.obsm["X_pca"], 3, out=tmp_path / "pca", report=False)
    np.testing.assert_array_equal(run.assignments.cluster, expected.assignments.cluster)
    assert run.config["columns"] == ["PC1", "PC2"]


def test_cells_of_one_name_are_refused(cells, tmp_path):
    cells.obs_names = ["same"] * 60
    with pytest.raises(NoData, match=r"60 observations named 'same'.*obs_names_make_unique"):
        probagg.cluster(cells, 3, out=tmp_path / "run")


# BERTopic

TOPICS = (
    "goal match team player league season coach striker penalty stadium",
    "guitar album song band concert melody drummer chorus studio vinyl",
    "oven flour butter recipe dough sugar bake pastry whisk cream",
)


@pytest.fixture
def corpus():
    """150 documents of ten words from one of three vocabularies, and which."""
    rng, y = np.random.default_rng(0), np.arange(150) % 3
    return [" ".join(rng.choice(TOPICS[k].split(), 10)) for k in y], y


def test_bertopic_takes_pac_for_its_clusters(corpus):
    bertopic = pytest.importorskip("bertopic")
    from bertopic.dimensionality import BaseDimensionalityReduction
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.pipeline import make_pipeline

    documents, y = corpus
    vectors = make_pipeline(TfidfVectorizer(), TruncatedSVD(8, random_state=0))
    X = vectors.fit_transform(documents)
    pac = PAC(3, metric="cosine", random_state=0)
    topics = bertopic.BERTopic(
        embedding_model=None, umap_model=BaseDimensionalityReduction(), hdbscan_model=pac
    )
    found, P = topics.fit_transform(documents, embeddings=X)
    assert probagg.clustering_accuracy(y, np.array(found)) == 1.0
    assert -1 not in found  # no document is left out
    for k in range(3):
        words = {word for word, _ in topics.get_topic(k)}
        assert any(words <= set(topic.split()) for topic in TOPICS)
    np.testing.assert_array_equal(P.argmax(1), found)
    pytest.importorskip("hdbscan")  # without it, transform of BERTopic 0.17.4 fails for any model
    new, P_new = topics.transform(documents[:6], embeddings=X[:6])
    assert list(new) == found[:6]
    assert P_new is None  # BERTopic asks only HDBSCAN for them
    assert pac.predict_proba(X[:6]).shape == (6, 3)


def test_the_exported_model_gets_the_pixels_that_predict_sees(clustered, tmp_path):
    """A wide photo that EXIF turns: only the run's own preprocessing gives these pixels."""
    wide = np.random.default_rng(0).integers(0, 256, (300, 420, 3), dtype=np.uint8)
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(wide).save(tmp_path / "wide.jpg", exif=exif)
    pixels = clustered.onnx_inputs(tmp_path)
    assert (pixels.shape, pixels.dtype) == ((1, 224, 224, 3), np.uint8)
    backbone = clustered.backbone("cpu")
    prepared = backbone.prepare(open_photo(tmp_path / "wide.jpg", backbone.near))
    seen = (pixels[0] / 255 - backbone.mean) / backbone.std
    np.testing.assert_allclose(seen.transpose(2, 0, 1), prepared, atol=1e-5)
    (tmp_path / "bad.jpg").write_bytes(b"no photo")
    with pytest.raises(NoData, match=r"bad\.jpg cannot be read"):
        clustered.onnx_inputs(tmp_path)
