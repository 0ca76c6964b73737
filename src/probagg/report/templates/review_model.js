'use strict';

// The run and its review as plain data: no document, no network. A review is never changed in
// place, so undo is a list of reviews.

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

// The survivor takes over a name where it has none of its own.
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

// A sample that goes back to where the model and the merges put it is no longer moved.
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

// What is wrong with a name, in words; null where nothing is.
export function nameTrouble(name) {
  const length = [...name].length;
  return length > MAX_NAME ? `${length} characters; ${MAX_NAME} is the most.` : null;
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

// What follows from a run and a review: the cluster of each sample, and each cluster's samples.
export function look(run, review) {
  const groups = survivors(review, run.nClusters);
  const { name, cluster } = run.samples;
  const labels = name.map((text, row) => groups[review.moved.get(text) ?? cluster[row]]);
  const clusters = groups.flatMap((survivor, k) => (survivor === k ? [k] : []));
  const members = new Map(clusters.map((k) => [k, []]));
  for (const row of run.orders.typical) members.get(labels[row]).push(row);
  const isMoved = (row) => review.moved.has(name[row]);
  return { groups, labels, clusters, members, isMoved };
}

// A cluster's samples in one of the orders; what a person has put there comes first.
export function ordered(run, view, cluster, order) {
  const mine = run.orders[order].filter((row) => view.labels[row] === cluster);
  const calm = order === 'borderline' ? (row) => flagOf(run, view, row) !== 'borderline' : () => false;
  const rank = (row) => (view.isMoved(row) ? 0 : 1 + calm(row));
  return mine.sort((a, b) => rank(a) - rank(b));
}

// Between two clusters that are one now, nothing is borderline; what a person placed is settled.
export function flagOf(run, view, row) {
  if (view.isMoved(row)) return 'moved';
  const second = run.samples.second_cluster[row];
  const inside = second !== null && view.groups[second] === view.labels[row];
  return run.samples.flag[row] === 'borderline' && inside ? '' : run.samples.flag[row];
}

// The second most probable cluster, where it is another one than the sample's own.
export function alternative(run, view, row) {
  const second = run.samples.second_cluster[row];
  if (second === null || view.groups[second] === view.labels[row]) return null;
  return { cluster: view.groups[second], probability: run.samples.second_probability[row] };
}

// Clusters that this one is often confused with: [cluster, borderline samples], most first.
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

// Clusters that carry the same name as this one.
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
