'use strict';

// The run and its review as plain data, without document or network. A review is never changed in
// place, so that undo is a list of reviews.

export const ORDERS = { typical: 'Typical', uncertain: 'Least certain', farthest: 'Farthest' };
export const MAX_NAME = 80;

export const DISCARDED = -1; // the number in the place of a cluster

// ---- reviews: names (cluster -> text), merged (cluster -> cluster), moved (sample -> cluster),
// created (clusters), splits ({ cluster, parts, members (sample -> part), ... }), discarded (samples)

const numbered = (object) => new Map(Object.entries(object).map(([k, value]) => [Number(k), value]));
const withMembers = (split) => ({ ...split, members: new Map(Object.entries(split.members)) });

export function fromJson(json) {
  return {
    names: numbered(json.names),
    merged: numbered(json.merged),
    moved: new Map(Object.entries(json.moved)),
    created: json.created,
    splits: json.splits.map(withMembers),
    discarded: new Set(json.discarded),
  };
}

export function toJson(review) {
  return {
    format: 'probagg.review/2',
    names: Object.fromEntries(review.names),
    merged: Object.fromEntries(review.merged),
    moved: Object.fromEntries(review.moved),
    created: review.created,
    splits: review.splits.map((one) => ({ ...one, members: Object.fromEntries(one.members) })),
    discarded: [...review.discarded],
  };
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

export function unmerged(review, cluster) {
  return { ...review, merged: changed(review.merged, cluster, null) };
}

// A sample that goes back to its own cluster, after merges and splits, is no longer moved.
export function moved(review, run, view, rows, into) {
  const [moves, discarded] = [new Map(review.moved), new Set(review.discarded)];
  for (const row of rows) {
    const name = run.samples.name[row];
    if (view.own[row] === into) moves.delete(name);
    else moves.set(name, into);
    discarded.delete(name);
  }
  return { ...review, moved: moves, discarded };
}

export function movedToNew(review, run, view, rows) {
  const cluster = numbers(review, run.nClusters);
  const added = { ...review, created: [...review.created, cluster] };
  return { cluster, review: moved(added, run, view, rows, cluster) };
}

export function discarded(review, run, rows) {
  const names = rows.map((row) => run.samples.name[row]);
  return { ...review, discarded: new Set([...review.discarded, ...names]) };
}

export function restored(review, run, rows) {
  const names = new Set(rows.map((row) => run.samples.name[row]));
  return { ...review, discarded: new Set([...review.discarded].filter((name) => !names.has(name))) };
}

// The parts of a cluster that has a name are called by it and numbered.
export function split(review, json) {
  const names = new Map(review.names);
  const name = [...review.names.get(json.cluster) ?? ''].slice(0, MAX_NAME - 2).join('');
  if (name) json.parts.forEach((k, i) => names.set(k, `${name} ${i + 1}`));
  return { ...review, names, splits: [...review.splits, withMembers(json)] };
}

// The cluster as it was before its split: what was done to its parts since applies to it, or is gone.
export function rejoined(review, cluster) {
  const { parts } = review.splits.find((one) => one.cluster === cluster);
  const inner = parts.filter((k) => review.splits.some((one) => one.cluster === k));
  const { names, merged: merges, moved: moves, splits, ...rest } = inner.reduce(rejoined, review);
  const others = (map) => [...map].filter(([k]) => !parts.includes(k));
  const whole = ([key, into]) => [key, parts.includes(into) ? cluster : into];
  return {
    ...rest,
    names: new Map(others(names)),
    merged: new Map(others(merges).map(whole)),
    moved: new Map([...moves].map(whole)),
    splits: splits.filter((one) => one.cluster !== cluster),
  };
}

// The number after that of the last cluster.
function numbers(review, nClusters) {
  return Math.max(nClusters - 1, ...added(review)) + 1;
}

const added = (review) => [...review.created, ...review.splits.flatMap((one) => one.parts)];

function survivors(review, nClusters) {
  const follow = (k) => (review.merged.has(k) ? follow(review.merged.get(k)) : k);
  return Array.from({ length: numbers(review, nClusters) }, (_, k) => follow(k));
}

export const nameOf = (review, cluster) => review.names.get(cluster)
  ?? (cluster === DISCARDED ? 'discarded' : `cluster ${cluster}`);

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
      uncertain: sorted((row) => flagged(row, 'borderline'), margin),
      farthest: sorted((row) => flagged(row, 'outlier'), (row) => -distance(row)),
    },
  };
}

// What follows from a run and a review: the cluster of each sample, and the samples per cluster.
export function look(run, review) {
  const groups = survivors(review, run.nClusters);
  const { name, cluster } = run.samples;
  const gone = new Set([...review.merged.keys(), ...review.splits.map((one) => one.cluster)]);
  const every = [...Array(run.nClusters).keys(), ...added(review)];
  const clusters = every.filter((k) => !gone.has(k)).sort((a, b) => a - b);
  // The cluster of a sample after merges and splits.
  const settle = (row, k) => {
    let found = groups[k];
    for (const { cluster: whole, parts, members } of review.splits) {
      if (whole === found) found = groups[members.get(name[row]) ?? parts[0]];
    }
    return found;
  };
  const own = cluster.map((k, row) => settle(row, k));
  const placed = name.map((text, row) => {
    const chosen = review.moved.get(text);
    return chosen === undefined ? own[row] : settle(row, chosen);
  });
  const labels = name.map((text, row) => (review.discarded.has(text) ? DISCARDED : placed[row]));
  const members = new Map(clusters.map((k) => [k, []]));
  if (review.discarded.size) members.set(DISCARDED, []);
  for (const row of run.orders.typical) members.get(labels[row]).push(row);
  const isMoved = (row) => labels[row] !== DISCARDED && labels[row] !== own[row];
  return { groups, settle, own, placed, labels, clusters, members, isMoved };
}

// The cluster to show where one was asked for that may have been merged, split or undone.
export function nearest(view, review, cluster) {
  let found = view.groups[cluster] ?? cluster;
  for (const one of review.splits) if (one.cluster === found) found = view.groups[one.parts[0]];
  return view.members.has(found) ? found : view.clusters[0];
}

// A sample after the review: its clusters merged or split, itself moved or discarded. The same rule
// as Review.apply in Python; tests/report/fixtures/review_cases.json holds both to it.
export function sampleOf(run, view, row) {
  const { samples } = run;
  const own = view.own[row];
  const other = samples.second_cluster[row];
  const second = other === null ? null : view.settle(row, other);
  const sample = {
    cluster: own, probability: samples.probability[row],
    second_cluster: second, second_probability: samples.second_probability[row],
    distance: samples.distance[row], flag: samples.flag[row], moved: false,
  };
  if (view.labels[row] === DISCARDED) {
    return {
      cluster: DISCARDED, probability: 0, second_cluster: view.placed[row], second_probability: 0,
      distance: null, flag: 'discarded', moved: false,
    };
  }
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
  const isLast = (row) => order === 'uncertain' && flagOf(run, view, row) !== 'borderline';
  const rank = (row) => (view.isMoved(row) ? 0 : 1 + isLast(row));
  return mine.sort((a, b) => rank(a) - rank(b));
}

export function flagOf(run, view, row) {
  return view.isMoved(row) ? 'moved' : sampleOf(run, view, row).flag;
}

// Clusters that share borderline samples with this one: [cluster, samples], most first. Those of the
// parts of a split cluster are not known.
export function confusedWith(run, view, cluster) {
  const counts = new Map();
  for (const { pair, samples } of run.overlaps) {
    const [a, b] = pair.map((k) => view.groups[k]);
    if (a === b || !samples || (a !== cluster && b !== cluster)) continue;
    const other = a === cluster ? b : a;
    if (!view.members.has(other)) continue;
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
