'use strict';

// The review page: draws each region from the state, opens dialogs, and handles keys.

import * as model from './model.js';
import { createGrid } from './grid.js';
import { renderHeading, suggestions } from './heading.js';
import { openNeighbour, renderClusters, showCurrent } from './list.js';
import { button, element, percent, thumbnail } from './parts.js';
import { pick } from './picker.js';
import { post } from './saving.js';
import {
  begin, discard, merge, move, moveToNew, nameOf, open, openSimilar, redo, rename, restore,
  sizeOf, sortBy, split, state, things, titleOf, typical, undo,
} from './state.js';
import { createViewer } from './viewer.js';

const $ = (id) => document.getElementById(id);
const grid = createGrid(state, { describe, onSelect: renderBar, onOpen: enlarge });
const viewer = createViewer(state, {
  describe,
  toggle: (place) => grid.choose(place, false),
  compare: showSimilar,
  leave: (place) => grid.focus(place),
});

function enlarge(place) {
  if (state.run.pictures) viewer.open(place);
}

// ---- drawing

function redraw({ fromTop }) {
  renderTop();
  renderClusters();
  renderHeading({ merge: askMerge, split: askSplit });
  renderOrders();
  if (fromTop) {
    grid.restart();
    scrollTo(0, 0);
    showCurrent();
  } else grid.render();
  renderBar();
}

function renderTop() {
  const { run, view, past, future } = state;
  document.title = `Review: ${run.run}`;
  $('title').textContent = run.run;
  const discarded = state.review.discarded.size;
  $('summary').textContent =
    `${things(run.samples.name.length - discarded)} in ${model.count(view.clusters.length, 'cluster')}`
    + (discarded ? `, ${discarded.toLocaleString('en')} discarded` : '');
  $('undo').disabled = !past.length;
  $('redo').disabled = !future.length;
}

function renderSaved() {
  const { what, error } = state.saving;
  $('saved').className = what;
  if (what !== 'failed') {
    $('saved').textContent = what === 'saving' ? 'Saving…' : 'Saved';
    return;
  }
  $('saved').replaceChildren(element('span', {}, `Not saved: ${error.message}`),
    error.stale ? button('Reload', reload) : button('Retry', () => state.saver.retry()));
}

function reload() {
  state.saver.forget(); // the last change is lost, as the message said
  location.reload();
}

function renderOrders() {
  const label = element('span', { class: 'label small muted' }, 'Show first');
  $('orders').replaceChildren(label, ...Object.entries(model.ORDERS).map(([order, word], place) =>
    button(word, () => sortBy(order), {
      'aria-pressed': String(order === state.order && !state.similar), title: `${word} first (${place + 1})`,
    })));
  $('grid').setAttribute('aria-label', state.similar ? `Like ${titleOf(state.similar.row)}`
    : `${nameOf(state.cluster)}, ${state.order} first`);
  $('grid').dataset.order = state.similar ? 'similar' : state.order;
  $('grid').dataset.kind = state.run.things;
  $('empty').hidden = state.rows.length > 0;
  $('all').hidden = !state.rows.length;
}

function renderBar() {
  const number = state.selection.size;
  const words = number ? `${number.toLocaleString('en')} selected` : state.message?.words ?? '';
  const isDiscarded = state.cluster === model.DISCARDED;
  const actions = number ? [
    button('Move to…', askMove, { class: 'primary', id: 'move', title: 'Move (M)' }),
    button('New cluster…', askNew, { id: 'new', title: 'Move to a new cluster (N)' }),
    isDiscarded ? button('Restore', onSelected(restore), { id: 'restore', title: 'Restore (X)' })
      : button('Discard', onSelected(discard), { id: 'discard', title: 'Discard (X)' }),
    number === 1 && state.run.can_compare
      && button('More like this', () => showSimilar(), { id: 'like', title: 'More like this (L)' }),
    button('Clear', () => grid.select([]), { class: 'plain', title: 'Clear the selection (Esc)' }),
  ] : [state.message?.undo && button('Undo', undo)];
  $('bar').classList.toggle('busy', number > 0);
  $('bar').classList.toggle('quiet', !words);
  $('message').textContent = words;
  $('actions').replaceChildren(...actions.filter(Boolean));
}

function describe(row) {
  const { run, view } = state;
  const name = titleOf(row);
  const sample = model.sampleOf(run, view, row);
  const { moved, second_cluster: other, second_probability: p } = sample;
  const flag = moved ? 'moved' : sample.flag;
  const isDecided = moved || flag === 'discarded'; // by a person
  const probability = isDecided ? null : sample.probability;
  const second = other === null ? null
    : isDecided ? ['from', nameOf(other)] : ['or', `${nameOf(other)} (${percent(p)})`];
  const home = state.similar && ['in', nameOf(sample.cluster)];
  const words = [name, nameOf(sample.cluster), !isDecided && `probability ${percent(probability)}`,
    flag, second?.join(' ')].filter(Boolean);
  return {
    name: name.split('/').at(-1), isImage: run.things === 'image', hasPicture: run.pictures,
    label: words.join(', '), title: words.join('\n'), probability, flag,
    second: home ?? second,
  };
}

function say(words) {
  state.message = { words };
  renderBar();
}

// ---- dialogs

function choices(best, hint) {
  const others = state.view.clusters
    .filter((k) => (k !== state.cluster || state.similar) && !best.includes(k));
  return [...best, ...others].map((cluster) => ({
    cluster,
    name: nameOf(cluster),
    detail: sizeOf(cluster).toLocaleString('en'),
    hint: best.includes(cluster) && hint,
    rows: state.run.pictures ? typical(cluster, 4) : [],
  }));
}

// The clusters that are second for most of the selected samples, at most three.
function likelyTargets() {
  const votes = new Map();
  for (const row of state.selection) {
    const { second_cluster: k, second_probability: p } = model.sampleOf(state.run, state.view, row);
    if (k !== null) votes.set(k, (votes.get(k) ?? 0) + p);
  }
  return [...votes].sort((a, b) => b[1] - a[1]).slice(0, 3).map(([cluster]) => cluster);
}

// Select the focused sample where none is, act on the selection, and keep the focus near.
function onSelected(action) {
  return async () => {
    if (!state.selection.size) grid.selectFocused();
    if (!state.selection.size) return say(`Select ${state.run.things}s first.`);
    const first = state.rows.findIndex((row) => state.selection.has(row));
    if (await action() === false) return undefined;
    return grid.focus(first);
  };
}

const askMove = onSelected(async () => {
  const into = await pick(`Move ${things(state.selection.size)} to`, choices(likelyTargets(), 'likely'));
  if (into === null) return false;
  return move(into);
});

// Open a dialog with a form; resolves to the value of the button that closed it.
async function answerOf(dialog) {
  dialog.returnValue = '';
  dialog.showModal();
  await new Promise((resolve) => { dialog.addEventListener('close', resolve, { once: true }); });
  return dialog.returnValue;
}

const askNew = onSelected(async () => {
  const input = $('naming-input'), rows = [...state.selection];
  $('naming-title').textContent = `New cluster of ${things(rows.length)}`;
  $('naming-pictures').replaceChildren(
    ...(state.run.pictures ? rows.slice(0, 12).map((row) => thumbnail(row, '')) : []));
  input.value = '';
  input.setCustomValidity('');
  if (!await answerOf($('naming'))) return false;
  return moveToNew(input.value);
});

async function askSplit() {
  $('splitter-title').textContent = `Split ${nameOf(state.cluster)}`;
  $('splitter-things').textContent = things(state.rows.length);
  const parts = await answerOf($('splitter'));
  if (!parts) return undefined;
  say('Splitting…');
  try {
    await split(Number(parts));
  } catch (error) {
    return say(`Not split: ${error.message}`);
  }
  return grid.focus(0);
}

// Of the given sample, or of the one that has the focus or is selected.
async function showSimilar(row = grid.current()) {
  if (!state.run.can_compare) return say('This run has no features to compare samples by.');
  if (row === undefined) return say(`Choose one ${state.run.things} first.`);
  try {
    await openSimilar(row);
  } catch (error) {
    return say(`Not found: ${error.message}`);
  }
  return grid.focus(0);
}

function clear() {
  if (state.similar && !state.selection.size) {
    open(state.cluster);
    grid.focus(0);
  } else grid.select([]);
}

async function askMerge() {
  const close = model.confusedWith(state.run, state.view, state.cluster).map(([k]) => k);
  const into = await pick(`Merge ${nameOf(state.cluster)} into`, choices(close, 'often confused'));
  if (into === null) return;
  merge(into);
  grid.focus(0);
}

async function finish() {
  await state.saver.settled();
  if (state.saver.unsaved) return say('Not finished: the last change is not saved.');
  try {
    await post('/api/done', {});
  } catch (error) {
    return say(`Not finished: ${error.message}`);
  }
  return renderEnd();
}

function renderEnd() {
  const { names, merged, splits, moved, discarded } = state.review;
  const parts = [
    [names.size, 'name'], [merged.size, 'merge'], [splits.length, 'split'], [moved.size, 'move'],
  ].filter(([number]) => number).map(([number, word]) => model.count(number, word));
  if (discarded.size) parts.push(`${things(discarded.size)} discarded`);
  $('review').remove();
  document.querySelector('.tools').remove();
  $('end').hidden = false;
  $('end').replaceChildren(
    element('h2', {}, 'Done. You can close this page.'),
    element('p', {}, `${parts.join(', ') || 'No changes'}: saved in review.json of the run. `
      + 'New predictions, exports and the next report use them.'),
    (merged.size || splits.length || moved.size || discarded.size)
      ? element('p', {}, element('code', {}, 'probagg refine RUN'), ' clusters again with the corrections.') : '',
    element('p', { class: 'muted' }, 'To continue the review, run the same command again.'));
  $('end').focus();
}

// ---- keys

function openFromTop(step) {
  openNeighbour(step);
  grid.focus(0);
}

const startRenaming = () => $('rename')?.click();
const KEYS = {
  '?': () => $('help').showModal(),
  '/': () => $('filter').focus(),
  m: askMove,
  n: askNew,
  x: onSelected(() => (state.cluster === model.DISCARDED ? restore() : discard())),
  s: () => $('split')?.click(),
  g: () => $('merge')?.click(),
  r: startRenaming,
  t: () => !state.similar && suggestions().length && rename(suggestions()[0]),
  F2: startRenaming,
  j: () => openFromTop(1),
  k: () => openFromTop(-1),
  l: () => showSimilar(),
  Escape: clear,
  1: () => sortBy('typical'),
  2: () => sortBy('uncertain'),
  3: () => sortBy('farthest'),
};
const CONTROL_KEYS = {
  z: (event) => (event.shiftKey ? redo() : undo()),
  y: redo,
  a: () => grid.select(state.rows),
};

function onKey(event) {
  if (event.altKey || event.target.matches('input, textarea')) return undefined;
  if (document.querySelector('dialog[open]') || !$('review')) return undefined;
  if (event.target === document.body && event.key.startsWith('Arrow')) {
    event.preventDefault();
    return grid.focus();
  }
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  const action = (event.ctrlKey || event.metaKey ? CONTROL_KEYS : KEYS)[key];
  if (!action) return undefined;
  event.preventDefault();
  return action(event);
}

// ---- start

function connect() {
  $('undo').addEventListener('click', undo);
  $('redo').addEventListener('click', redo);
  $('done').addEventListener('click', finish);
  $('keys').addEventListener('click', () => $('help').showModal());
  $('all').addEventListener('click', () => grid.select(state.rows));
  $('naming-input').addEventListener('input', ({ target }) =>
    target.setCustomValidity(model.nameTrouble(target.value.trim()) ?? ''));
  document.addEventListener('keydown', onKey);
  addEventListener('beforeunload', (event) => state.saver.unsaved && event.preventDefault());
}

async function start() {
  const answer = await fetch('/api/run');
  const data = await answer.json();
  if (!answer.ok) throw new Error(data.error);
  begin(data, { onChange: redraw, onSaving: renderSaved });
  $('review').hidden = false;
  connect();
  renderSaved();
  redraw({ fromTop: true });
}

start().catch((error) => {
  $('summary').textContent = `This page cannot start: ${error.message}`;
  throw error;
});
