'use strict';

(() => {
  const byId = (id) => document.getElementById(id);
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];

  // A picture is in the page once; where it is shown again, its source is copied from there.
  const pictures = new Map(
    all('main img[src]').map((image) => [image.dataset.row ?? image.dataset.copy, image]));

  function copyPictures() {
    for (const image of all('img:not([src])')) {
      const source = pictures.get(image.dataset.row ?? image.dataset.copy);
      if (source) image.src = source.src;
    }
  }

  function openTarget() {
    const target = location.hash && byId(decodeURIComponent(location.hash.slice(1)));
    if (target && target.tagName === 'DETAILS' && !target.open) {
      target.open = true;
      target.scrollIntoView();
    }
  }

  function setUpContents() {
    const nav = byId('contents'), button = byId('contents-button');
    const toggle = (open) => {
      nav.classList.toggle('open', open);
      button.setAttribute('aria-expanded', String(open));
    };
    button.addEventListener('click', () => toggle(!nav.classList.contains('open')));
    nav.addEventListener('click', (event) => { if (event.target.closest('a')) toggle(false); });
    document.addEventListener('keydown', (event) => {
      if (event.key === 'Escape' && nav.classList.contains('open')) { toggle(false); button.focus(); }
    });
    markCurrent(nav, button);
  }

  // Mark the section or cluster at the top of the screen in the contents.
  function markCurrent(nav, button) {
    const links = new Map(all('a', nav).map((link) => [link.hash.slice(1), link]));
    const places = all('main > section, .cluster').filter((place) => links.has(place.id));
    const update = () => {
      const passed = places.filter((place) => place.getBoundingClientRect().top < 160);
      const current = (passed.at(-1) ?? places[0]).id;
      for (const [id, link] of links) {
        if (id !== current) link.removeAttribute('aria-current');
        else if (!link.hasAttribute('aria-current')) {
          link.setAttribute('aria-current', 'true');
          keepInView(nav, link);
        }
      }
    };
    button.addEventListener('click', update);
    let waiting = false;
    document.addEventListener('scroll', () => {
      if (waiting) return;
      waiting = true;
      setTimeout(() => { waiting = false; update(); }, 100);
    }, { passive: true });
    update();
  }

  function keepInView(nav, link) {
    const low = link.offsetTop, most = nav.clientHeight;
    if (low < nav.scrollTop + 40 || low > nav.scrollTop + most - 60) nav.scrollTop = low - most / 2;
  }

  function setUpClusters() {
    const openAll = (open) => () => { for (const part of all('.cluster')) part.open = open; };
    byId('open-all')?.addEventListener('click', openAll(true));
    byId('close-all')?.addEventListener('click', openAll(false));
    addEventListener('hashchange', openTarget);
    document.addEventListener('click', (event) => {
      const link = event.target.closest?.('a[href^="#cluster-"]');
      if (link && link.hash === location.hash) openTarget();  // the hash does not change again
    });
    openTarget();
  }

  function setUpCopy() {
    const button = byId('copy');
    button?.addEventListener('click', async () => {
      const text = byId('command').textContent;
      let done = true;
      try { await navigator.clipboard.writeText(text); } catch { done = select(byId('command')); }
      button.textContent = done ? 'Copied' : 'Selected';
      byId('copy-status').textContent = done ? 'Copied' : 'Selected: press Ctrl+C';
      setTimeout(() => { button.textContent = 'Copy'; }, 2000);
    });
  }

  // Without access to the clipboard, select the text for Ctrl+C.
  function select(node) {
    getSelection().selectAllChildren(node);
    return document.execCommand('copy');
  }

  copyPictures();
  setUpContents();
  setUpClusters();
  setUpCopy();
})();
