'use strict';

// The list of clusters with typical pictures, name and size, and the field that filters it.

import { DISCARDED } from './model.js';
import { button, element, thumbnail } from './parts.js';
import { nameOf, open, sizeOf, state, typical } from './state.js';

const list = document.getElementById('clusters');
const filter = document.getElementById('filter');
const progress = document.getElementById('progress');
const items = new Map(); // by cluster, kept so that pictures load once

export function renderClusters() {
  const { view, review, cluster } = state;
  const listed = listedClusters();
  const largest = Math.max(1, ...view.clusters.map(sizeOf));
  const nothing = element('li', { class: 'muted nothing' }, 'No cluster matches.');
  const nodes = listed.map((k) => fill(itemOf(k), k, largest));
  if (nodes.some((node, place) => list.children[place] !== node) || list.children.length !== nodes.length) {
    list.replaceChildren(...(nodes.length ? nodes : [nothing]));
  }
  const tabbed = listed.includes(cluster) ? cluster : listed[0];
  listed.forEach((k) => items.get(k).button.setAttribute('tabindex', k === tabbed ? '0' : '-1'));
  const named = view.clusters.filter((k) => review.names.has(k)).length;
  progress.textContent = `${named} of ${view.clusters.length} named`;
}

function listedClusters() {
  const wanted = filter.value.trim().toLocaleLowerCase();
  const fits = (k) => nameOf(k).toLocaleLowerCase().includes(wanted) || String(k) === wanted;
  return [...state.view.clusters, DISCARDED].filter((k) => state.view.members.has(k) && fits(k));
}

function itemOf(k) {
  if (!items.has(k)) {
    const press = button('', () => open(k));
    items.set(k, { node: element('li', {}, press), button: press, rows: null, pictures: null });
  }
  return items.get(k);
}

function fill(item, k, largest) {
  const rows = typical(k, 3);
  if (state.run.pictures && item.rows !== rows.join()) {
    item.rows = rows.join();
    item.pictures = element('span', { class: 'pictures' }, ...rows.map((row) => thumbnail(row, '')));
  }
  const size = element('span', { class: 'size' });
  size.style.width = `${(100 * sizeOf(k)) / largest}%`;
  item.button.setAttribute('aria-current', String(k === state.cluster));
  item.button.replaceChildren(...[
    item.pictures,
    element('span', { class: 'words' },
      element('bdi', {}, k === DISCARDED ? 'Discarded' : nameOf(k)),
      element('span', { class: 'number muted' }, sizeOf(k).toLocaleString('en')),
      element('span', { class: 'track' }, size)),
  ].filter(Boolean));
  return item.node;
}

export function openNeighbour(distance) {
  const listed = listedClusters();
  const place = listed.indexOf(state.cluster) + distance;
  if (place >= 0 && place < listed.length) open(listed[place]);
  showCurrent();
}

// Not by scrollIntoView, which would also move the starting point of Tab.
export function showCurrent() {
  const item = items.get(state.cluster)?.node.getBoundingClientRect();
  const frame = list.getBoundingClientRect();
  if (!item) return;
  list.scrollBy(Math.min(0, item.left - frame.left) + Math.max(0, item.right - frame.right),
    Math.min(0, item.top - frame.top) + Math.max(0, item.bottom - frame.bottom));
}

filter.addEventListener('input', renderClusters);
filter.addEventListener('keydown', (event) => {
  if (event.key !== 'Enter' || event.isComposing || !listedClusters().length) return;
  open(listedClusters()[0]);
  items.get(state.cluster).button.focus();
});
list.addEventListener('keydown', (event) => {
  const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  event.preventDefault();
  openNeighbour(step);
  items.get(state.cluster)?.button.focus();
});
