'use strict';

// The state of the page and the actions that change it. Every action ends in `redraw`, which the
// page provides, and every change of the review is saved at once.

import * as model from './model.js';
import { createSaver, post } from './saving.js';

export const state = {
  run: null,
  review: null,
  view: null, // model.look(run, review)
  cluster: 0,
  order: 'typical',
  rows: [], // of the cluster, in the order
  selection: new Set(),
  similar: null, // { row, rows }: shown in place of the cluster
  past: [], // [{ review, cluster, words }]
  future: [],
  saving: { what: 'saved', error: null },
  renaming: false,
  message: null, // { words, undo }
  saver: null,
};
let redraw = () => {};

export const nameOf = (cluster) => model.nameOf(state.review, cluster);
export const sizeOf = (cluster) => state.view.members.get(cluster).length;
// Samples to show a cluster by, most typical first.
export const typical = (cluster, number) => {
  const members = state.view.members.get(cluster);
  const unmoved = members.filter((row) => !state.view.isMoved(row));
  return (unmoved.length ? unmoved : members).slice(0, number);
};
export const titleOf = (row) => {
  const { key, name } = state.run.samples;
  return key === 'row' ? `row ${name[row]}` : name[row];
};
export const things = (number) => model.count(number, state.run.things);

export function begin(data, { onChange, onSaving }) {
  redraw = onChange;
  state.run = model.createRun(data);
  state.saver = createSaver(data.version, (what, error = null) => {
    state.saving = { what, error };
    onSaving();
  });
  adopt(model.fromJson(data.review), Number(location.hash.slice(1)));
}

function adopt(review, cluster) {
  state.review = review;
  state.view = model.look(state.run, review);
  state.cluster = model.nearest(state.view, review, cluster);
  state.rows = state.similar?.rows
    ?? model.ordered(state.run, state.view, state.cluster, state.order);
  const here = new Set(state.rows);
  state.selection = new Set([...state.selection].filter((row) => here.has(row)));
  history.replaceState(null, '', `/#${state.cluster}`); // this also removes the secret from the address
}

function go(review, cluster, message) {
  const before = state.cluster;
  adopt(review, cluster);
  state.message = message;
  state.renaming = false;
  redraw({ fromTop: state.cluster !== before });
}

// Every change of the review goes through here: recorded for undo, drawn, saved.
function change(review, words, cluster = state.cluster) {
  state.past.push({ review: state.review, cluster: state.cluster, words });
  state.future = [];
  if (state.similar) state.selection.clear(); // what was moved stays in the list
  go(review, cluster, { words, undo: true });
  state.saver.save(review);
}

function travel(from, to, verb) {
  const step = from.pop();
  if (!step) return;
  to.push({ review: state.review, cluster: state.cluster, words: step.words });
  go(step.review, step.cluster, { words: `${verb}: ${step.words}` });
  state.saver.save(state.review);
}

export const undo = () => travel(state.past, state.future, 'Undone');
export const redo = () => travel(state.future, state.past, 'Redone');

export function open(cluster) {
  if (cluster === state.cluster && !state.similar) return;
  show(null, cluster);
}

// Show the cluster or, in its place, samples that are similar to one.
function show(similar, cluster) {
  state.similar = similar;
  state.selection.clear();
  adopt(state.review, cluster);
  [state.message, state.renaming] = [null, false];
  redraw({ fromTop: true });
}

// Throws where the server cannot find them.
export async function openSimilar(row) {
  const { samples } = await post('/api/similar', { sample: row });
  show({ row, rows: [row, ...samples] }, state.cluster);
}

export function sortBy(order) {
  [state.order, state.similar] = [order, null];
  adopt(state.review, state.cluster);
  redraw({ fromTop: true });
}

export function setRenaming(renaming) {
  state.renaming = renaming;
  redraw({ fromTop: false });
}

const cleaned = (name) => name.trim().replace(/\s+/g, ' ');

export function rename(name) {
  const clean = cleaned(name);
  if (clean === (state.review.names.get(state.cluster) ?? '')) {
    setRenaming(false);
    return;
  }
  const words = clean ? `Named cluster ${state.cluster} “${clean}”.`
    : `Removed the name of cluster ${state.cluster}.`;
  change(model.renamed(state.review, state.cluster, clean), words);
}

export function merge(into) {
  const words = `Merged ${nameOf(state.cluster)} into ${nameOf(into)}.`;
  change(model.merged(state.review, state.cluster, into), words, into);
}

export function unmerge(cluster) {
  const words = `Separated ${nameOf(cluster)} from ${nameOf(state.cluster)}.`;
  change(model.unmerged(state.review, cluster), words);
}

export function move(into) {
  const rows = [...state.selection];
  const words = `Moved ${things(rows.length)} to ${nameOf(into)}.`;
  change(model.moved(state.review, state.run, state.view, rows, into), words);
}

export function moveToNew(name) {
  const rows = [...state.selection];
  const { cluster, review } = model.movedToNew(state.review, state.run, state.view, rows);
  const named = model.renamed(review, cluster, cleaned(name));
  change(named, `Moved ${things(rows.length)} to the new ${model.nameOf(named, cluster)}.`);
}

export function discard() {
  const rows = [...state.selection];
  change(model.discarded(state.review, state.run, rows), `Discarded ${things(rows.length)}.`);
}

export function restore() {
  const rows = [...state.selection];
  change(model.restored(state.review, state.run, rows), `Restored ${things(rows.length)}.`);
}

// The server finds the parts; the change itself is saved as every other. Throws where it cannot.
export async function split(parts) {
  const { review, cluster } = state;
  const found = await post('/api/split', { review: model.toJson(review), cluster, parts });
  if (state.review !== review) throw new Error('The review was changed meanwhile. Split again.');
  const sizes = found.parts.map((k) => state.view.members.get(cluster)
    .filter((row) => found.members[state.run.samples.name[row]] === k).length);
  const words = `Split ${nameOf(cluster)} into ${parts} parts: ${sizes.join(', ')} ${state.run.things}s.`;
  change(model.split(review, found), words, found.parts[0]);
}

export function rejoin(cluster) {
  const words = `Undid the split of ${nameOf(cluster)}.`;
  change(model.rejoined(state.review, cluster), words, cluster);
}
