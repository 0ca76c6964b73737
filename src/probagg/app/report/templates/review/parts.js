'use strict';

// Elements of the page. Text enters the document only as text, never as HTML.

export function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

export function button(text, onclick, attributes = {}) {
  return element('button', { type: 'button', onclick, ...attributes }, text);
}

// A picture of a sample, or its name where it cannot be read.
export function thumbnail(row, alt) {
  const image = element('img', {
    class: 'thumb', loading: 'lazy', decoding: 'async', draggable: 'false', alt,
    width: 192, height: 192,
  });
  image.addEventListener('load', () => image.classList.toggle('pixelated', image.naturalWidth < 48));
  image.addEventListener('error', () => image.replaceWith(placeholder(alt)), { once: true });
  image.src = `/thumb/${row}`;
  return image;
}

export function placeholder(text) {
  return element('span', { class: 'thumb placeholder' }, element('bdi', {}, text));
}

export const percent = (probability) => (probability === null ? '' : probability.toFixed(2));
