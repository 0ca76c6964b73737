'use strict';

(() => {
  const byId = (id) => document.getElementById(id);
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];

  function element(tag, text, kind) {
    const made = document.createElement(tag);
    if (text) made.textContent = text;
    if (kind) made.className = kind;
    return made;
  }

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

  function setUpMap() {
    const view = byId('map-view');
    if (!view) return;
    const data = ProbaggMap.readData(byId('map-data').textContent);
    const swatches = new Map(
      all('.legend [data-cluster]').map((b) => [b.dataset.cluster, b.querySelector('.swatch')]));
    const colourOf = (k) => getComputedStyle(swatches.get(String(k))).backgroundColor;
    const map = new ProbaggMap.DotMap(view, data, colourOf,
      (i) => { if (map.pinned < 0) showTip(map, i, false); },
      (i) => showTip(map, i, true));
    map.moved = () => placeTip(map);
    window.probaggMap = map;  // for tests
    document.addEventListener('themechange', () => { map.readColours(); map.redraw(); });
    listenToPointer(map);
    listenToKeys(map);
    setUpLegend(map);
    byId('map-in').addEventListener('click', () => map.zoom(1.6));
    byId('map-out').addEventListener('click', () => map.zoom(1 / 1.6));
    byId('map-reset').addEventListener('click', () => map.reset());
  }

  function describe(map, i) {
    const { data } = map;
    const name = data.names ? data.names[i] : `row ${data.rows[i]}`;
    const p = data.probability[i];
    const flag = ProbaggMap.FLAGS[data.flag[i]];
    const how = p > 1000 ? 'moved by hand' : `probability ${(p / 1000).toFixed(2)}`;
    return { name, cluster: data.clusters[data.cluster[i]], how, flag };
  }

  function showTip(map, i, pinned) {
    const tip = byId('map-tip');
    tip.hidden = i < 0;
    tip.classList.toggle('pinned', pinned);
    tip.replaceChildren();
    if (i < 0) { byId('map-status').textContent = ''; return; }
    const { name, cluster, how, flag } = describe(map, i);
    const k = map.data.cluster[i];
    const picture = pictures.get(String(map.data.rows[i]));
    if (picture) {
      const image = element('img', '', picture.className);
      image.src = picture.src;
      image.alt = '';
      tip.append(image);
    }
    const place = pinned ? element('a') : element('span');
    if (pinned) place.href = `#cluster-${k}`;
    place.append(element('span', '', `swatch k${k}`), element('bdi', pinned ? `Go to ${cluster}` : cluster));
    tip.append(element('bdi', name, 'name'), place, element('br'), element('span', how, 'muted'));
    if (flag) tip.append(' ', element('span', flag, `tag ${flag}`));
    if (pinned) byId('map-status').textContent = `${name}, ${cluster}, ${how} ${flag}`;
    placeTip(map);
  }

  function placeTip(map) {
    const tip = byId('map-tip');
    const i = map.pinned >= 0 ? map.pinned : map.hovered;
    if (i < 0 || tip.hidden) return;
    const [x, y] = map.toScreen(map.data.xy[2 * i], map.data.xy[2 * i + 1]);
    const left = x + 16 + tip.offsetWidth > map.width ? x - 16 - tip.offsetWidth : x + 16;
    const inside = (v, most) => Math.max(6, Math.min(v, most - 6));
    tip.style.left = `${inside(left, map.width - tip.offsetWidth)}px`;
    tip.style.top = `${inside(y - tip.offsetHeight / 2, map.height - tip.offsetHeight)}px`;
  }

  function listenToPointer(map) {
    const { view } = map;
    const down = new Map();   // last position of each pointer on the map
    let travelled = 0;
    const at = (event) => {
      const box = view.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };
    const isMap = (event) => !event.target.closest('button, #map-tip.pinned');
    view.addEventListener('pointerdown', (event) => {
      if (!isMap(event)) return;
      down.set(event.pointerId, at(event));
      travelled = 0;
    });
    view.addEventListener('pointermove', (event) => {
      const here = at(event), before = down.get(event.pointerId);
      if (!before) { map.hover(isMap(event) ? map.dotAt(...here) : -1); return; }
      const step = [here[0] - before[0], here[1] - before[1]];
      travelled += Math.hypot(...step);
      if (down.size === 2) pinch(map, down, event.pointerId, here);
      else if (event.pointerType !== 'touch' && travelled > 4) {
        // Only now, since a captured pointer would keep clicks from the buttons on the map.
        if (!view.hasPointerCapture(event.pointerId)) view.setPointerCapture(event.pointerId);
        view.classList.add('dragging');
        map.pan(...step);
      }
      down.set(event.pointerId, here);
    });
    const release = (event) => {
      if (!down.delete(event.pointerId)) return;
      view.classList.remove('dragging');
      if (event.type === 'pointerup' && travelled <= 4 && !down.size) map.pin(map.dotAt(...at(event)));
    };
    view.addEventListener('pointerup', release);
    view.addEventListener('pointercancel', release);
    view.addEventListener('pointerleave', () => map.hover(-1));
    view.addEventListener('wheel', (event) => {
      // The page must scroll past a map that does not have the focus.
      if (document.activeElement !== view && !event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      map.zoom(Math.exp(-event.deltaY * (event.ctrlKey ? 0.01 : 0.002)), ...at(event));
    }, { passive: false });
  }

  function pinch(map, down, id, here) {
    const [other] = [...down].filter(([key]) => key !== id).map(([, place]) => place);
    const before = down.get(id);
    const gap = (place) => Math.max(1, Math.hypot(place[0] - other[0], place[1] - other[1]));
    map.zoom(gap(here) / gap(before), (here[0] + other[0]) / 2, (here[1] + other[1]) / 2);
    map.pan((here[0] - before[0]) / 2, (here[1] - before[1]) / 2);
  }

  function listenToKeys(map) {
    const step = 60;
    const actions = {
      '+': () => map.zoom(1.4), '=': () => map.zoom(1.4),
      '-': () => map.zoom(1 / 1.4), '_': () => map.zoom(1 / 1.4),
      '0': () => map.reset(),
      'ArrowLeft': () => map.pan(step, 0), 'ArrowRight': () => map.pan(-step, 0),
      'ArrowUp': () => map.pan(0, step), 'ArrowDown': () => map.pan(0, -step),
      'Escape': () => map.pin(-1),
    };
    map.view.addEventListener('keydown', (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || !actions[event.key]) return;
      event.preventDefault();
      actions[event.key]();
    });
  }

  function setUpLegend(map) {
    const buttons = all('.legend [data-cluster]'), everything = byId('legend-all');
    const update = () => {
      const pressed = buttons.filter((b) => b.getAttribute('aria-pressed') === 'true');
      everything.disabled = !pressed.length;
      map.show(pressed.map((b) => Number(b.dataset.cluster)));
    };
    for (const button of buttons) {
      button.addEventListener('click', () => {
        button.setAttribute('aria-pressed', String(button.getAttribute('aria-pressed') !== 'true'));
        update();
      });
    }
    everything.addEventListener('click', () => {
      for (const button of buttons) button.setAttribute('aria-pressed', 'false');
      update();
    });
  }

  copyPictures();
  setUpContents();
  setUpClusters();
  setUpCopy();
  setUpMap();
})();
