'use strict';

// A picture of the page in a dialog: by click or Enter; arrows go on to the others of its cluster.
(() => {
  const byId = (id) => document.getElementById(id);
  const dialog = byId('viewer'), image = byId('viewer-image');
  if (!dialog) return;
  const pictures = (root) => [...root.querySelectorAll('.thumbs img')];
  let shown = [], place = 0;

  function show(target) {
    place = Math.max(0, Math.min(target, shown.length - 1));
    const source = shown[place];
    image.src = source.src;
    image.alt = source.alt;
    image.className = source.className;
    byId('viewer-title').textContent = source.alt;
    byId('viewer-facts').textContent = `${place + 1} of ${shown.length} here`;
    byId('viewer-previous').disabled = place === 0;
    byId('viewer-next').disabled = place === shown.length - 1;
  }

  function open(source) {
    shown = pictures(source.closest('.cluster, #overlaps'));
    show(shown.indexOf(source));
    dialog.showModal();
    dialog.focus();
  }

  // One picture of a list is reached by Tab, the others from there by arrows.
  function focus(source) {
    for (const other of source.closest('.thumbs').querySelectorAll('img')) other.tabIndex = -1;
    source.tabIndex = 0;
    source.focus();
  }

  const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
  const isPlain = (event) => !event.ctrlKey && !event.metaKey && !event.altKey;

  for (const list of document.querySelectorAll('.thumbs')) {
    const inside = [...list.querySelectorAll('img')];
    inside.forEach((source, i) => {
      source.tabIndex = i ? -1 : 0;
      source.setAttribute('role', 'button');
      source.addEventListener('click', () => open(source));
    });
    list.addEventListener('keydown', (event) => {
      const i = inside.indexOf(event.target), other = inside[i + steps[event.key]];
      if (i < 0 || !isPlain(event)) return;
      if (['Enter', ' '].includes(event.key)) open(event.target);
      else if (other) focus(other);
      else return;
      event.preventDefault();
    });
  }

  dialog.addEventListener('keydown', (event) => {
    if (!isPlain(event) || !(event.key in steps)) return;
    event.preventDefault();
    show(place + steps[event.key]);
  });
  dialog.addEventListener('click', (event) => [dialog, image].includes(event.target) && dialog.close());
  dialog.addEventListener('close', () => focus(shown[place]));
  byId('viewer-previous').addEventListener('click', () => show(place - 1));
  byId('viewer-next').addEventListener('click', () => show(place + 1));
})();
