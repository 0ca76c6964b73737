'use strict';

// The run and its review as plain data, without document or network. A review is never changed in
// place, so that undo is a list of reviews.

export const ORDERS = { typical: 'Typical', borderline: 'Borderline', unusual: 'Unusual' };
export const MAX_NAME = 80;

// ---- reviews: names (cluster -> text), merged (cluster -> cluster), moved (sample -> cluster)

const numbered = (object) => new Map(Object.entries(object).map(([k, value]) => [Number(k), value]));

export function fromJson(json) {
  return {
    names: numbered(json.names),
    merged: numbered(json.merged),
    moved: new Map(Object.entries(json.moved)),
  };
}

export function toJson(review) {
  const parts = Object.entries(review).map(([part, map]) => [part, Object.fromEntries(map)]);
  return { format: 'probagg.review/1', ...Object.fromEntries(parts) };
}

function changed(map, key, value) {
  const copy = new Map(map);
  if (value === null) copy.delete(key);
  else copy.set(key, value);
  return copy;
}

export function renamed(review, cluster, name) {
  return { ...review, names: changed(review.names, cluster, name || null) };
}

// The survivor takes the name of the other cluster where it has none.
export function merged(review, from, into) {
  const name = review.names.get(into) ?? review.names.get(from) ?? null;
  return {
    ...review,
    names: changed(review.names, into, name),
    merged: changed(review.merged, from, into),
  };
}

export function split(review, cluster) {
  return { ...review, merged: changed(review.merged, cluster, null) };
}

// A sample that goes back to its own cluster, after merges, is no longer moved.
export function moved(review, run, rows, into) {
  const groups = survivors(review, run.nClusters);
  const moves = new Map(review.moved);
  for (const row of rows) {
    if (groups[run.samples.cluster[row]] === into) moves.delete(run.samples.name[row]);
    else moves.set(run.samples.name[row], into);
  }
  return { ...review, moved: moves };
}

export function survivors(review, nClusters) {
  const follow = (k) => (review.merged.has(k) ? follow(review.merged.get(k)) : k);
  return Array.from({ length: nClusters }, (_, k) => follow(k));
}

export const nameOf = (review, cluster) => review.names.get(cluster) ?? `cluster ${cluster}`;

// What is wrong with a name, as text; null where nothing is.
export function nameTrouble(name) {
  const length = [...name].length;
  return length > MAX_NAME ? `${length} characters; at most ${MAX_NAME} are allowed.` : null;
}

// ---- the run

export function createRun(data) {
  const { samples } = data;
  const rows = samples.name.map((_, row) => row);
  const margin = (row) => (samples.probability[row] ?? 1) - (samples.second_probability[row] ?? 0);
  const distance = (row) => samples.distance[row] ?? 0;
  const flagged = (row, flag) => (samples.flag[row] === flag ? 0 : 1);
  const sorted = (...keys) => [...rows].sort((a, b) => {
    for (const key of keys) {
      const difference = key(a) - key(b);
      if (difference) return difference;
    }
    return a - b;
  });
  return {
    ...data,
    nClusters: data.n_clusters,
    things: data.samples.key === 'path' || data.pictures ? 'image' : 'row',
    orders: {
      typical: sorted((row) => -(samples.probability[row] ?? 0), distance),
      borderline: sorted((row) => flagged(row, 'borderline'), margin),
      unusual: sorted((row) => flagged(row, 'outlier'), (row) => -distance(row)),
    },
  };
}

// What follows from a run and a review: the cluster of each sample, and the samples per cluster.
export function look(run, review) {
  const groups = survivors(review, run.nClusters);
  const { name, cluster } = run.samples;
  const labels = name.map((text, row) => groups[review.moved.get(text) ?? cluster[row]]);
  const clusters = groups.flatMap((survivor, k) => (survivor === k ? [k] : []));
  const members = new Map(clusters.map((k) => [k, []]));
  for (const row of run.orders.typical) members.get(labels[row]).push(row);
  const isMoved = (row) => labels[row] !== groups[cluster[row]];
  return { groups, labels, clusters, members, isMoved };
}

// A sample after the review: its clusters merged, then itself moved. The same rule as Review.apply
// in Python; tests/report/fixtures/review_cases.json holds both to it.
export function sampleOf(run, view, row) {
  const { samples } = run;
  const [own, second] = [samples.cluster[row], samples.second_cluster[row]]
    .map((k) => (k === null ? null : view.groups[k]));
  const sample = {
    cluster: own, probability: samples.probability[row],
    second_cluster: second, second_probability: samples.second_probability[row],
    distance: samples.distance[row], flag: samples.flag[row], moved: false,
  };
  if (view.isMoved(row)) {
    return {
      cluster: view.labels[row], probability: 1, second_cluster: own, second_probability: 0,
      distance: null, flag: '', moved: true,
    };
  }
  if (second !== own) return sample;
  return { // its two clusters are one now
    ...sample, probability: sample.probability + sample.second_probability,
    second_cluster: null, second_probability: null,
    flag: sample.flag === 'borderline' ? '' : sample.flag,
  };
}

// The samples of a cluster in one of the orders; those that a person moved there come first.
export function ordered(run, view, cluster, order) {
  const mine = run.orders[order].filter((row) => view.labels[row] === cluster);
  const isLast = (row) => order === 'borderline' && flagOf(run, view, row) !== 'borderline';
  const rank = (row) => (view.isMoved(row) ? 0 : 1 + isLast(row));
  return mine.sort((a, b) => rank(a) - rank(b));
}

export function flagOf(run, view, row) {
  return view.isMoved(row) ? 'moved' : sampleOf(run, view, row).flag;
}

// Clusters that share borderline samples with this one: [cluster, samples], most first.
export function confusedWith(run, view, cluster) {
  const counts = new Map();
  for (const { pair, samples } of run.overlaps) {
    const [a, b] = pair.map((k) => view.groups[k]);
    if (a === b || !samples || (a !== cluster && b !== cluster)) continue;
    const other = a === cluster ? b : a;
    counts.set(other, (counts.get(other) ?? 0) + samples);
  }
  return [...counts].sort((a, b) => b[1] - a[1]);
}

// Other clusters with the same name.
export function namesakes(review, view, cluster) {
  const plain = (k) => review.names.get(k)?.toLocaleLowerCase();
  if (!review.names.has(cluster)) return [];
  return view.clusters.filter((k) => k !== cluster && plain(k) === plain(cluster));
}

export const mergedInto = (view, cluster) =>
  view.groups.flatMap((survivor, k) => (survivor === cluster && k !== cluster ? [k] : []));

export function count(number, thing) {
  return `${number.toLocaleString('en')} ${thing}${number === 1 ? '' : 's'}`;
}
