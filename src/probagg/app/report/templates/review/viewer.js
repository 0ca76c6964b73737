'use strict';

// The dialog that shows one picture large, and goes on to the others of the cluster.

const dialog = document.getElementById('viewer');
const image = document.getElementById('viewer-image');
const title = document.getElementById('viewer-title');
const facts = document.getElementById('viewer-facts');
const [previous, next, like, close] = ['previous', 'next', 'like', 'close']
  .map((part) => document.getElementById(`viewer-${part}`));

// `describe(row)` returns the texts; `toggle(place)` selects; `compare(row)` shows similar samples;
// `leave(place)` is called at the end.
export function createViewer(state, { describe, toggle, compare, leave }) {
  let place = 0;

  function render() {
    const row = state.rows[place];
    const { title: words, label } = describe(row);
    const [name, ...others] = words.split('\n');
    image.alt = label;
    image.src = `/photo/${row}`;
    title.textContent = name;
    const chosen = state.selection.has(row) ? ['selected'] : [];
    const where = `${place + 1} of ${state.rows.length}`;
    facts.textContent = [where, ...others, ...chosen].join(' · ');
    previous.disabled = place === 0;
    next.disabled = place === state.rows.length - 1;
  }

  function go(target) {
    place = Math.max(0, Math.min(target, state.rows.length - 1));
    render();
  }

  function select() {
    toggle(place);
    render();
  }

  function showSimilar() {
    if (!state.run.can_compare) return;
    dialog.close();
    compare(state.rows[place]);
  }

  const keys = {
    ArrowRight: () => go(place + 1), ArrowDown: () => go(place + 1),
    ArrowLeft: () => go(place - 1), ArrowUp: () => go(place - 1),
    Home: () => go(0), End: () => go(state.rows.length - 1),
    ' ': select,
    l: showSimilar,
    Enter: () => dialog.close(),
  };
  image.addEventListener('load', () => image.classList.toggle('pixelated', image.naturalWidth <= 48));
  dialog.addEventListener('keydown', (event) => {
    const isPress = ['Enter', ' '].includes(event.key) && event.target.matches('button');
    if (!keys[event.key] || isPress || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    keys[event.key]();
  });
  dialog.addEventListener('click', (event) => [dialog, image].includes(event.target) && dialog.close());
  dialog.addEventListener('close', () => {
    image.removeAttribute('src');
    leave(place);
  });
  previous.addEventListener('click', () => go(place - 1));
  next.addEventListener('click', () => go(place + 1));
  like.addEventListener('click', showSimilar);
  close.addEventListener('click', () => dialog.close());

  return {
    open(target) {
      go(target);
      like.hidden = !state.run.can_compare;
      dialog.showModal();
      dialog.focus();
    },
  };
}
