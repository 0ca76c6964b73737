'use strict';

// The dialog of "Move to..." and "Merge into...": a combo box of clusters that typing filters.

import { element, thumbnail } from './parts.js';

const dialog = document.getElementById('picker');
const title = document.getElementById('picker-title');
const input = document.getElementById('picker-input');
const list = document.getElementById('picker-list');

let choices = [];
let shown = [];
let active = 0;
let decide = () => {};

// offered: [{ cluster, name, detail, hint, rows }], best first, of which rows are shown as pictures.
// Resolves to a cluster, or null.
export function pick(question, offered) {
  choices = offered.map((one) => ({ ...one, node: option(one) }));
  title.textContent = question;
  input.value = '';
  filter();
  dialog.showModal();
  input.focus();
  return new Promise((resolve) => { decide = resolve; });
}

function filter() {
  const wanted = input.value.trim().toLocaleLowerCase();
  const isExact = ({ name, cluster }) =>
    name.toLocaleLowerCase() === wanted || String(cluster) === wanted;
  const fits = choices.filter((one) => one.name.toLocaleLowerCase().includes(wanted) || isExact(one));
  shown = [...fits.filter(isExact), ...fits.filter((one) => !isExact(one))];
  active = 0;
  render();
}

function option({ cluster, name, detail, hint, rows }) {
  return element('li', { id: `pick-${cluster}`, role: 'option', onclick: () => finish(cluster) },
    rows.length > 0
      && element('span', { class: 'pictures' }, ...rows.map((row) => thumbnail(row, ''))),
    element('bdi', { class: 'ellipsis' }, name), hint && element('span', { class: 'tag' }, hint),
    element('span', { class: 'number muted' }, detail));
}

function render() {
  const options = shown.map(({ node }) => node);
  options.forEach((node, index) => node.setAttribute('aria-selected', String(index === active)));
  const nothing = element('li', { class: 'muted nothing' }, 'No cluster matches.');
  list.replaceChildren(...(options.length ? options : [nothing]));
  const chosen = options[active];
  input.setAttribute('aria-activedescendant', chosen?.id ?? '');
  chosen?.scrollIntoView({ block: 'nearest' });
}

function step(distance) {
  if (!shown.length) return;
  active = (active + distance + shown.length) % shown.length;
  render();
}

function finish(cluster) {
  decide(cluster);
  decide = () => {};
  dialog.close();
}

const keys = {
  ArrowDown: () => step(1),
  ArrowUp: () => step(-1),
  Enter: () => shown.length && finish(shown[active].cluster),
};

input.addEventListener('input', filter);
input.addEventListener('keydown', (event) => {
  if (!keys[event.key] || event.isComposing) return;
  event.preventDefault();
  keys[event.key]();
});
dialog.addEventListener('close', () => dialog.open || finish(null));
dialog.addEventListener('click', (event) => event.target === dialog && finish(null));
