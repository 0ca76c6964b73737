'use strict';

// The grid of a cluster's samples: which are shown, focused and selected. It reads `state.rows` and
// writes `state.selection`; tiles are kept, so that pictures load once.

import { element, percent, placeholder, thumbnail } from './parts.js';

const PAGE = 200;

export function createGrid(state, { describe, onSelect, onOpen }) {
  const node = document.getElementById('grid');
  const more = document.getElementById('more');
  let tiles = new Map();
  let shown = PAGE;
  let focused = 0; // places in state.rows
  let anchor = 0;

  // ---- drawing

  function tileOf(row) {
    if (!tiles.has(row)) {
      const facts = describe(row);
      const picture = facts.hasPicture ? thumbnail(row, facts.label)
        : facts.isImage ? placeholder(facts.name) : null;
      const tile = element('div', { class: 'tile', role: 'option', tabindex: '-1' });
      tile.row = row;
      tile.picture = picture && element('div', { class: 'picture' }, picture);
      tiles.set(row, tile);
    }
    return tiles.get(row);
  }

  function fill(tile) {
    const { name, title, label, probability, flag, second } = describe(tile.row);
    tile.setAttribute('aria-label', label);
    tile.title = title;
    tile.replaceChildren(...[
      tile.picture,
      element('div', { class: 'caption' },
        element('bdi', { class: 'ellipsis' }, name),
        element('span', { class: 'number' }, percent(probability))),
      second && element('div', { class: 'other ellipsis' }, `${second[0]} `,
        element('bdi', {}, second[1])),
      flag && element('span', { class: `tag ${flag}` }, flag),
      element('span', { class: 'check', 'aria-hidden': 'true' }, '✓'),
      tile.picture && element('span',
        { class: 'zoom', title: 'Enlarge (Enter)', 'aria-hidden': 'true' }, '⤢'),
    ].filter(Boolean));
  }

  function mark(tile, place) {
    tile.setAttribute('aria-selected', String(state.selection.has(tile.row)));
    tile.setAttribute('tabindex', place === focused ? '0' : '-1');
  }

  function render() {
    focused = Math.max(0, Math.min(focused, state.rows.length - 1));
    const current = state.rows.slice(0, shown).map(tileOf);
    current.forEach(fill);
    current.forEach(mark);
    node.replaceChildren(...current);
    renderMore();
  }

  function renderMarks() {
    [...node.children].forEach(mark);
    onSelect();
  }

  function renderMore() {
    const left = state.rows.length - shown;
    more.hidden = left <= 0;
    more.lastElementChild.textContent =
      `${shown.toLocaleString('en')} of ${state.rows.length.toLocaleString('en')} shown`;
  }

  function showMore() {
    if (shown >= state.rows.length) return;
    const added = state.rows.slice(shown, shown + PAGE).map(tileOf);
    added.forEach(fill);
    added.forEach((tile, index) => mark(tile, shown + index));
    node.append(...added);
    shown += PAGE;
    renderMore();
  }

  // ---- selecting

  function between(a, b) {
    return state.rows.slice(Math.min(a, b), Math.max(a, b) + 1);
  }

  function toggle(place) {
    const row = state.rows[place];
    if (!state.selection.delete(row)) state.selection.add(row);
    anchor = place;
  }

  function extend(place) {
    between(anchor, place).forEach((row) => state.selection.add(row));
  }

  function choose(place, isRange) {
    if (place < 0 || place >= state.rows.length) return;
    if (isRange) extend(place);
    else toggle(place);
    focused = place;
    renderMarks();
  }

  function select(rows) {
    state.selection = new Set(rows);
    renderMarks();
  }

  // ---- the keyboard

  function focus(place = focused) {
    focused = Math.max(0, Math.min(place, state.rows.length - 1));
    while (focused >= shown) showMore();
    [...node.children].forEach(mark);
    const tile = node.children[focused];
    tile?.focus({ preventScroll: true });
    tile?.scrollIntoView({ block: 'nearest' });
  }

  function step(key) {
    const columns = getComputedStyle(node).gridTemplateColumns.split(' ').length;
    const places = {
      ArrowLeft: focused - 1, ArrowRight: focused + 1,
      ArrowUp: focused - columns, ArrowDown: focused + columns,
      Home: 0, End: state.rows.length - 1,
    };
    return places[key];
  }

  node.addEventListener('keydown', (event) => {
    const place = step(event.key);
    if (event.key === ' ') choose(focused, event.shiftKey);
    else if (event.key === 'Enter') onOpen(focused);
    else if (place !== undefined && !event.ctrlKey && !event.metaKey && !event.altKey) {
      if (place < 0 || place >= state.rows.length) return event.preventDefault();
      if (event.shiftKey) {
        if (!state.selection.size) anchor = focused;
        extend(place);
      }
      focus(place);
      if (event.shiftKey) onSelect();
    } else return undefined;
    return event.preventDefault();
  });

  node.addEventListener('click', (event) => {
    const tile = event.target.closest('.tile');
    if (!tile) return undefined;
    const place = [...node.children].indexOf(tile);
    if (event.target.closest('.zoom')) return onOpen(place);
    choose(place, event.shiftKey);
    return tile.focus({ preventScroll: true });
  });
  node.addEventListener('mousedown', (event) => event.shiftKey && event.preventDefault());

  more.firstElementChild.addEventListener('click', showMore);
  new IntersectionObserver((entries) => entries.some((entry) => entry.isIntersecting) && showMore(),
    { rootMargin: '800px' }).observe(more);

  return {
    render,
    focus,
    select,
    choose,
    // The sample that has the focus, or the only one selected.
    current() {
      if (node.contains(document.activeElement)) return state.rows[focused];
      return state.selection.size === 1 ? [...state.selection][0] : undefined;
    },
    // Select the sample that has the focus, if any.
    selectFocused() {
      if (node.contains(document.activeElement)) select([state.rows[focused]]);
    },
    // Start from the top, for another cluster or order.
    restart() {
      tiles = new Map();
      [shown, focused, anchor] = [PAGE, 0, 0];
      render();
    },
  };
}
