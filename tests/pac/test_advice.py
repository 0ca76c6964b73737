"""PAC warns where columns differ in scale, and not where they do not."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from probagg import PAC
from probagg.errors import ClusteringWarning
from probagg.pac.advice import differing_scales, uneven_scales


def warned(X, **params):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        PAC(3, random_state=0, **params).fit(X)
    return [str(w.message) for w in found if w.category is ClusteringWarning]


def test_columns_of_different_units_are_named_once_with_what_to_do():
    pd = pytest.importorskip("pandas")
    wine = load_wine()
    (message,) = warned(pd.DataFrame(wine.data, columns=wine.feature_names))
    for words in ("factor of 2,5", "'proline' is 31", "'nonflavanoid_phenols' 0.12"):
        assert words in message
    assert "make_pipeline(StandardScaler(), PAC(...))" in message
    (message,) = warned(wine.data)
    assert "column 12" in message


def test_one_unit_standardised_rows_and_other_metrics_are_fine():
    wine = load_wine().data
    assert not warned(load_iris().data)
    assert not warned(load_digits().data)  # rare pixels hardly vary, but have the same unit
    assert not warned(wine, metric="cosine")
    assert not warned(sp.csr_array(wine))
    with warnings.catch_warnings():
        warnings.simplefilter("error", ClusteringWarning)
        make_pipeline(StandardScaler(), PAC(3, random_state=0)).fit(wine)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_principal_components_have_one_unit(rng, dtype):
    """Also where some are nothing but rounding errors, as columns were copies of others."""
    X = rng.normal(size=(300, 6)) * [50, 10, 5, 1, 0.5, 0.1]
    X = np.column_stack([X, X @ rng.normal(size=(6, 3))]).astype(dtype)
    Z = PCA().fit_transform(X)
    assert Z.std(0).max() > 1e6 * Z.std(0).min()
    assert not warned(Z)
    assert warned(Z[:, ::-1])


@pytest.mark.parametrize("unit", [1e-200, np.float32(1e25)])
def test_the_unit_of_rows_leads_to_no_warning(rng, unit):
    """Squares of such values vanish or overflow; k-means and NumPy would warn of it."""
    X = np.concatenate([rng.normal(size=(60, 4)) + 20 * k for k in range(3)])
    X = X.astype(np.asarray(unit).dtype) * unit
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        labels = PAC(3, random_state=0).fit_predict(X)
    assert len({tuple(set(labels[60 * k : 60 * k + 60])) for k in range(3)}) == 3


def test_m_above_the_critical_value_is_told_by_what_came_of_it(rng):
    noise = rng.normal(size=(300, 100))
    with pytest.warns(ConvergenceWarning) as found:
        PAC(3, random_state=0).fit(noise)
    text = str(found[0].message)
    assert "all stay near 1/3: no cluster forms" in text
    assert "the paper uses" not in text  # 1.03 is what was used
    groups = rng.normal(size=(300, 2)) + 3 * np.repeat(np.eye(3, 2), 100, axis=0)
    above = PAC(3, random_state=0).fit(groups).critical_m_ + 1e-3
    with pytest.warns(ConvergenceWarning, match="another start may end in them") as found:
        pac = PAC(3, m=above, init=np.eye(3)[np.repeat([0, 1, 2], 100)]).fit(groups)
    assert "(the paper uses 1.03)" in str(found[0].message)
    assert pac.probabilities_.max(1).mean() > 0.35


def test_constant_columns_do_not_count(rng):
    X = rng.normal(size=(300, 3))
    X[:, 1], X[:, 2] = 1e9, 1e-9 * (rng.random(300) < 0.02)
    assert not warned(X)
    X[:, 2] = 1e-9 * rng.normal(size=300)
    assert len(warned(X)) == 1


def test_a_twentieth_of_many_columns_does_not_count(rng):
    X = rng.normal(size=(200, 50))
    X[:, :2] *= 1e-4
    assert differing_scales(X, 100.0) is None
    X[:, :4] *= 1e-4
    assert differing_scales(X, 100.0).smallest in range(4)


def test_files_and_tensors_are_judged_from_some_of_their_rows(tmp_path, rng):
    from probagg.pac.files import open_file

    X = rng.normal(size=(5000, 3)) * [1, 1, 1000]
    np.save(tmp_path / "rows.npy", X)
    assert "column 2" in uneven_scales(open_file(tmp_path / "rows.npy"), "sqeuclidean")
    torch = pytest.importorskip("torch")
    assert "column 2" in uneven_scales(torch.from_numpy(X), "sqeuclidean")


def test_missing_values_are_left_aside():
    X = np.array([[1.0, np.nan, np.nan], [2.0, 500.0, np.nan], [3.0, 1000.0, np.nan]])
    assert round(differing_scales(X, 100.0).factor) == 306
