'use strict';

// The map: up to 50,000 dots, written into the pixels of one canvas (a canvas call per dot would
// take ten times as long); labels and rings are on a second canvas.
const ProbaggMap = (() => {
  const { CELLS, readData, buildGrid, makeStamp, labelPlaces, boxOf } = ProbaggDots;
  const REACH = 12;           // CSS pixels around the pointer within which a dot is found
  const BLENDS = 3_000_000;   // most pixels blended per frame: about 20 ms
  const SCALES = [1, 60];
  const FLAGS = ['', 'borderline', 'outlier'];

  class DotMap {
    constructor(view, data, colourOf, onHover, onPick) {
      this.view = view;
      this.data = data;
      this.colourOf = colourOf;
      this.onHover = onHover;
      this.onPick = onPick;
      this.dots = view.querySelector('#map-dots');
      this.marks = view.querySelector('#map-marks');
      this.grid = buildGrid(data);
      this.labels = labelPlaces(data);
      this.chosen = new Set();    // clusters shown in colour; if empty, all
      this.hovered = -1;
      this.pinned = -1;
      this.scale = 1;
      this.box = boxOf(data);
      this.centre = this.box.middle;
      this.frame = 0;
      this.lastDraw = 0;
      this.readColours();
      new ResizeObserver(() => this.resize()).observe(view);
      this.resize();
    }

    readColours() {
      const rgb = (text) => text.match(/[\d.]+/g).slice(0, 3).map(Number);
      const style = getComputedStyle(this.view);
      this.ink = style.color;
      this.back = getComputedStyle(this.view.parentElement).backgroundColor;
      const ground = rgb(this.back);
      const dim = rgb(style.color).map((v, c) => ground[c] + 0.16 * (v - ground[c]));
      const n = Math.max(...Object.keys(this.data.clusters).map(Number)) + 1;
      this.colours = new Float32Array(3 * n);
      for (const k of Object.keys(this.data.clusters)) this.colours.set(rgb(this.colourOf(k)), 3 * k);
      this.ground = ground;
      this.dim = dim;
    }

    resize() {
      this.width = this.view.clientWidth;
      this.height = this.view.clientHeight;
      this.ratio = Math.min(2, window.devicePixelRatio || 1);
      for (const canvas of [this.dots, this.marks]) {
        canvas.width = Math.max(1, Math.round(this.width * this.ratio));
        canvas.height = Math.max(1, Math.round(this.height * this.ratio));
      }
      this.image = null;
      this.redraw();
    }

    // Side of the unit square in CSS pixels: at scale 1 all dots fit into the view.
    get side() {
      const [w, h] = this.box.size;
      return this.scale * Math.min((this.width - 48) / w, (this.height - 48) / h);
    }
    toScreen(x, y) {
      return [
        this.width / 2 + (x - this.centre[0]) * this.side,
        this.height / 2 + (y - this.centre[1]) * this.side,
      ];
    }
    toMap(x, y) {
      return [
        this.centre[0] + (x - this.width / 2) / this.side,
        this.centre[1] + (y - this.height / 2) / this.side,
      ];
    }

    redraw() {
      if (this.frame) return;
      this.frame = requestAnimationFrame(() => { this.frame = 0; this.draw(); });
    }

    draw() {
      const began = performance.now();
      this.drawDots();
      this.drawMarks();
      this.lastDraw = performance.now() - began;
    }

    // Radius of a dot in canvas pixels: smaller for many dots or a small view.
    radius(visible) {
      const room = Math.sqrt((this.width * this.height) / Math.max(1, visible));
      const wish = Math.max(1.1, Math.min(4.5, 0.21 * room)) * Math.min(1.8, this.scale ** 0.25);
      const most = Math.sqrt(BLENDS / Math.max(1, visible) / Math.PI) - 0.5;
      return Math.max(0.8, Math.min(wish * this.ratio, most));
    }

    visibleDots() {
      const { xy, n } = this.data;
      const [left, top] = this.toMap(-8, -8);
      const [right, bottom] = this.toMap(this.width + 8, this.height + 8);
      const inside = new Uint32Array(n);
      let count = 0;
      for (let i = 0; i < n; i++) {
        const x = xy[2 * i], y = xy[2 * i + 1];
        if (x >= left && x <= right && y >= top && y <= bottom) inside[count++] = i;
      }
      return inside.subarray(0, count);
    }

    drawDots() {
      const { width, height } = this.dots;
      const context = this.dots.getContext('2d');
      this.image ??= context.createImageData(width, height);
      const [r, g, b] = this.ground;
      new Uint32Array(this.image.data.buffer).fill((255 << 24) | (b << 16) | (g << 8) | r);
      const visible = this.visibleDots();
      const stamp = makeStamp(this.radius(visible.length));
      if (this.chosen.size) {
        const isChosen = (i) => this.chosen.has(this.data.cluster[i]);
        this.stampAll(visible.filter((i) => !isChosen(i)), stamp, this.dim, 0.7);
        this.stampAll(visible.filter(isChosen), stamp, null, 0.9);
      } else {
        this.stampAll(visible, stamp, null, visible.length > 5000 ? 0.75 : 0.85);
      }
      context.putImageData(this.image, 0, 0);
    }

    // Blend a disc per dot, in one colour or in the colour of its cluster.
    stampAll(dots, stamp, colour, opacity) {
      const pixels = this.image.data, { width, height } = this.dots;
      const { xy, cluster } = this.data;
      const kx = this.side * this.ratio, ky = kx;
      const ox = (this.width / 2) * this.ratio - this.centre[0] * kx;
      const oy = (this.height / 2) * this.ratio - this.centre[1] * ky;
      const n = stamp.length;
      const dx = Int16Array.from(stamp, (s) => s.x), dy = Int16Array.from(stamp, (s) => s.y);
      const alpha = Float32Array.from(stamp, (s) => s.cover * opacity);
      let [r, g, b] = colour ?? [0, 0, 0];
      for (const i of dots) {
        const cx = Math.round(ox + xy[2 * i] * kx), cy = Math.round(oy + xy[2 * i + 1] * ky);
        if (!colour) {
          const c = 3 * cluster[i];
          r = this.colours[c]; g = this.colours[c + 1]; b = this.colours[c + 2];
        }
        for (let s = 0; s < n; s++) {
          const x = cx + dx[s], y = cy + dy[s];
          if (x < 0 || y < 0 || x >= width || y >= height) continue;
          const p = 4 * (y * width + x), a = alpha[s];
          pixels[p] += a * (r - pixels[p]);
          pixels[p + 1] += a * (g - pixels[p + 1]);
          pixels[p + 2] += a * (b - pixels[p + 2]);
        }
      }
    }

    drawMarks() {
      const context = this.marks.getContext('2d');
      context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
      context.clearRect(0, 0, this.width, this.height);
      this.drawLabels(context);
      for (const i of new Set([this.pinned, this.hovered])) if (i >= 0) this.drawRing(context, i);
    }

    drawRing(context, i) {
      const [x, y] = this.toScreen(this.data.xy[2 * i], this.data.xy[2 * i + 1]);
      context.lineWidth = 4;
      context.strokeStyle = this.back;
      context.beginPath();
      context.arc(x, y, 8, 0, 2 * Math.PI);
      context.stroke();
      context.lineWidth = 2;
      context.strokeStyle = this.ink;
      context.stroke();
    }

    // Names of larger clusters first; a name that would cover another is left out.
    drawLabels(context) {
      const taken = [];
      context.font = `600 12px ${getComputedStyle(this.view).fontFamily}`;
      context.textAlign = 'center';
      context.textBaseline = 'middle';
      context.lineJoin = 'round';
      for (const { k, x, y } of this.labels) {
        if (this.chosen.size && !this.chosen.has(k)) continue;
        const full = this.data.clusters[k];
        const name = full.length > 18 ? `${full.slice(0, 17)}…` : full.replace(/^cluster /, '');
        const [sx, sy] = this.toScreen(x, y);
        const half = context.measureText(name).width / 2 + 3;
        const box = [sx - half, sy - 9, sx + half, sy + 9];
        if (sx < 0 || sy < 0 || sx > this.width || sy > this.height) continue;
        if (taken.some((t) => box[0] < t[2] && box[2] > t[0] && box[1] < t[3] && box[3] > t[1])) continue;
        taken.push(box);
        context.lineWidth = 4;
        context.strokeStyle = this.back;
        context.strokeText(name, sx, sy);
        context.fillStyle = this.ink;
        context.fillText(name, sx, sy);
      }
    }

    // Index of the dot nearest to a point on the screen, or -1; only of chosen clusters, if any.
    dotAt(sx, sy) {
      const { xy, cluster } = this.data;
      const [x, y] = this.toMap(sx, sy);
      const reach = REACH / this.side;
      const cell = (v) => Math.max(0, Math.min(CELLS - 1, Math.floor(v * CELLS)));
      let best = -1, least = reach * reach;
      for (let line = cell(y - reach); line <= cell(y + reach); line++) {
        const row = line * CELLS;
        const end = this.grid.start[row + cell(x + reach) + 1];
        for (let o = this.grid.start[row + cell(x - reach)]; o < end; o++) {
          const i = this.grid.order[o];
          if (this.chosen.size && !this.chosen.has(cluster[i])) continue;
          const distance = (xy[2 * i] - x) ** 2 + (xy[2 * i + 1] - y) ** 2;
          if (distance < least) { least = distance; best = i; }
        }
      }
      return best;
    }

    hover(i) {
      if (i === this.hovered) return;
      this.hovered = i;
      this.drawMarks();
      this.onHover(i);
    }

    pin(i) {
      this.pinned = i;
      this.drawMarks();
      this.onPick(i);
    }

    zoom(factor, sx = this.width / 2, sy = this.height / 2) {
      const [x, y] = this.toMap(sx, sy);
      this.scale = Math.max(SCALES[0], Math.min(SCALES[1], this.scale * factor));
      const [nx, ny] = this.toMap(sx, sy);
      this.move(x - nx, y - ny);
    }

    // Move the view by a distance on the map; its centre stays on the map.
    move(dx, dy) {
      const kept = (v) => Math.max(0, Math.min(1, v));
      this.centre = [kept(this.centre[0] + dx), kept(this.centre[1] + dy)];
      this.moved?.();
      this.redraw();
    }

    pan(dx, dy) { this.move(-dx / this.side, -dy / this.side); }

    reset() {
      this.scale = 1;
      this.centre = this.box.middle;
      this.move(0, 0);
    }

    show(clusters) {
      this.chosen = new Set(clusters);
      this.redraw();
    }
  }

  return { DotMap, readData, FLAGS };
})();
