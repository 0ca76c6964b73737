'use strict';

// Above the images: the cluster's name and buttons, what it contains, and similar clusters.

import * as model from './model.js';
import { button, element } from './parts.js';
import {
  merge, nameOf, open, rejoin, rename, setRenaming, state, things, titleOf, unmerge,
} from './state.js';

const heading = document.getElementById('heading');

export function renderHeading(ask) {
  if (state.similar) return heading.replaceChildren(...similarLines());
  const { review, view, run, cluster } = state;
  const inside = model.mergedInto(view, cluster);
  const confused = model.confusedWith(run, view, cluster).slice(0, 2);
  const same = model.namesakes(review, view, cluster);
  const whole = review.splits.find(({ parts }) => parts.includes(cluster));
  heading.replaceChildren(...[
    state.renaming ? renameForm() : headline(ask),
    facts(),
    suggestions().length && suggestionLine(),
    whole && partLine(whole),
    inside.length && mergedLine(inside),
    confused.length && confusedLine(confused),
    same.length && sameNameLine(same[0]),
    run.trouble && troubleLine(run.trouble),
  ].filter(Boolean));
  const input = heading.querySelector('input');
  input?.focus();
  return input?.select();
}

function similarLines() {
  const { similar, cluster } = state;
  const back = element('bdi', {}, cluster === model.DISCARDED ? 'Discarded' : nameOf(cluster));
  return [
    element('div', { class: 'row headline' },
      element('h2', {}, 'Like ', element('bdi', {}, titleOf(similar.row))),
      button(element('span', {}, 'Back to ', back), () => open(cluster),
        { id: 'back', title: 'Back (Esc)' })),
    element('p', { class: 'muted' },
      `The ${things(similar.rows.length - 1)} most similar to it, of all clusters, nearest first`),
  ];
}

function headline(ask) {
  const { run, view, cluster, rows } = state;
  const isCluster = cluster !== model.DISCARDED;
  return element('div', { class: 'row headline' },
    element('h2', {}, element('bdi', {}, isCluster ? nameOf(cluster) : 'Discarded')),
    isCluster && button('Rename', () => setRenaming(true), { id: 'rename', title: 'Rename (R)' }),
    isCluster && view.clusters.length > 1
      && button('Merge into…', ask.merge, { id: 'merge', title: 'Merge into another (G)' }),
    isCluster && run.can_split && rows.length > 1
      && button('Split…', ask.split, { id: 'split', title: 'Split into parts (S)' }));
}

function renameForm() {
  const input = element('input', {
    id: 'name', type: 'text', 'aria-label': `Name of cluster ${state.cluster}`,
    'aria-describedby': 'name-trouble', placeholder: `cluster ${state.cluster}`,
    autocomplete: 'off', spellcheck: 'false', dir: 'auto',
  });
  input.value = state.review.names.get(state.cluster) ?? '';
  const trouble = element('span', { id: 'name-trouble', class: 'small trouble', role: 'alert' });
  input.addEventListener('keydown', (event) => {
    if (event.isComposing || !['Enter', 'Escape'].includes(event.key)) return;
    event.preventDefault(); // the same key would press the button that gets the focus next
    if (event.key === 'Enter') tryName(input, trouble);
    else leave();
  });
  input.addEventListener('blur', () => onBlur(input));
  return element('div', { class: 'row headline' }, input,
    element('span', { class: 'small muted' }, 'Enter saves, Esc cancels'), trouble);
}

function tryName(input, trouble) {
  const wrong = model.nameTrouble(input.value.trim());
  trouble.textContent = wrong ?? '';
  input.setAttribute('aria-invalid', String(wrong !== null));
  if (wrong !== null) return;
  rename(input.value);
  document.getElementById('rename').focus();
}

function leave() {
  setRenaming(false);
  document.getElementById('rename').focus();
}

// A click elsewhere saves, as Enter does. The field also loses the focus when it is removed or when
// the window loses it: nothing is saved then.
function onBlur(input) {
  if (!state.renaming || !input.isConnected || !document.hasFocus()) return;
  if (model.nameTrouble(input.value.trim()) === null) rename(input.value);
  else setRenaming(false);
}

function facts() {
  const { run, view, cluster, rows, review } = state;
  const flags = { '': 0, borderline: 0, outlier: 0, moved: 0, discarded: 0 };
  for (const row of rows) flags[model.flagOf(run, view, row)] += 1;
  const words = [
    review.names.has(cluster) && `cluster ${cluster}`,
    things(rows.length),
    flags.borderline && `${flags.borderline} borderline`,
    flags.outlier && `${flags.outlier} outlier${flags.outlier > 1 ? 's' : ''}`,
    flags.moved && `${flags.moved} moved here`,
    flags.discarded && 'in no cluster until restored or moved',
  ];
  return element('p', { class: 'muted' }, words.filter(Boolean).join(' · '), ' ',
    run.loose.includes(cluster)
      && element('span', { class: 'tag loose', title: 'Hardly nearer to its centre than to the next' }, 'loose'));
}

// Names for a cluster that has none: what its photos look like, or how its rows differ.
export function suggestions() {
  const { run, review, cluster } = state;
  return review.names.has(cluster) ? [] : run.suggestions[cluster] ?? [];
}

function suggestionLine() {
  const chip = (name, place) => button(element('bdi', {}, name), () => rename(name), {
    class: 'chip take', 'aria-label': `Name the cluster ${name}`,
    title: place ? 'Take this name' : 'Take this name (T)',
  });
  return element('p', { class: 'row small' },
    element('span', { class: 'muted' }, 'Suggested name'), ...suggestions().map(chip));
}

function mergedLine(inside) {
  const called = (k) => (nameOf(k) === nameOf(state.cluster) ? `cluster ${k}` : nameOf(k));
  const chip = (k) => button(element('bdi', {}, called(k)), () => unmerge(k), {
    class: 'chip', title: 'Undo this merge', 'aria-label': `Undo the merge of ${called(k)}`,
  });
  return element('p', { class: 'row small' }, element('span', { class: 'muted' }, 'Merged in'),
    ...inside.map(chip));
}

function partLine({ cluster }) {
  const chip = button(element('bdi', {}, nameOf(cluster)), () => rejoin(cluster), {
    class: 'chip', title: 'Undo this split', 'aria-label': `Undo the split of ${nameOf(cluster)}`,
  });
  return element('p', { class: 'row small' }, element('span', { class: 'muted' }, 'Part of'), chip);
}

function confusedLine(confused) {
  const one = ([k, samples]) => [
    button(element('bdi', {}, nameOf(k)), () => open(k), { class: 'link' }),
    ` (${things(samples)} borderline)`,
  ];
  return element('p', { class: 'small muted' }, 'Often confused with ',
    ...confused.flatMap((pair, place) => (place ? [' and ', ...one(pair)] : one(pair))));
}

function sameNameLine(other) {
  return element('p', { class: 'note warn row small' },
    element('span', {}, `Cluster ${other} has the same name.`),
    button('Merge them', () => merge(other)));
}

function troubleLine(trouble) {
  return element('p', { class: 'note warn small' }, `Images are shown by name only: ${trouble}`);
}
