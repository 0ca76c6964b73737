'use strict';

// The dots of the map as data: parsing, a grid to find them by position, their shape in pixels.
const ProbaggDots = (() => {
  const CELLS = 128;  // per side of the grid over the unit square that finds the dot under the pointer

  const unpack = (text, Kind) => {
    const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    return new Kind(bytes.buffer);
  };

  function readData(text) {
    const raw = JSON.parse(text);
    const cluster = unpack(raw.cluster, Uint16Array);
    const xy = Float32Array.from(unpack(raw.xy, Uint16Array), (v) => v / 65535);
    return {
      n: cluster.length, xy, cluster,
      rows: unpack(raw.rows, Uint32Array),
      probability: unpack(raw.probability, Uint16Array),
      flag: unpack(raw.flag, Uint8Array),
      names: raw.names, clusters: raw.clusters,
    };
  }

  // Sort dots by grid cell: those of cell c are order[start[c]] ... order[start[c + 1] - 1].
  function buildGrid(data) {
    const cellOf = new Uint16Array(data.n);
    const start = new Uint32Array(CELLS * CELLS + 1);
    for (let i = 0; i < data.n; i++) {
      const column = Math.min(CELLS - 1, Math.floor(data.xy[2 * i] * CELLS));
      const line = Math.min(CELLS - 1, Math.floor(data.xy[2 * i + 1] * CELLS));
      cellOf[i] = line * CELLS + column;
      start[cellOf[i] + 1]++;
    }
    for (let c = 0; c < CELLS * CELLS; c++) start[c + 1] += start[c];
    const next = start.slice();
    const order = new Uint32Array(data.n);
    for (let i = 0; i < data.n; i++) order[next[cellOf[i]]++] = i;
    return { start, order };
  }

  // Roughly how much of each pixel a disc of radius r covers.
  function makeStamp(r) {
    const half = Math.ceil(r);
    const stamp = [];
    for (let y = -half; y <= half; y++) {
      for (let x = -half; x <= half; x++) {
        const cover = Math.max(0, Math.min(1, r + 0.5 - Math.hypot(x, y)));
        if (cover > 0) stamp.push({ x, y, cover });
      }
    }
    return stamp;
  }

  // The label of a cluster is at the median of its dots; larger clusters come first.
  function labelPlaces(data) {
    const dots = new Map();
    for (let i = 0; i < data.n; i++) {
      const list = dots.get(data.cluster[i]);
      if (list) list.push(i); else dots.set(data.cluster[i], [i]);
    }
    const middle = (list, axis) => {
      const values = list.map((i) => data.xy[2 * i + axis]).sort((a, b) => a - b);
      return values[values.length >> 1];
    };
    return [...dots].sort((a, b) => b[1].length - a[1].length)
      .map(([k, list]) => ({ k, x: middle(list, 0), y: middle(list, 1) }));
  }

  // Middle and size of the box around all dots.
  function boxOf({ xy, n }) {
    const low = [1, 1], high = [0, 0];
    for (let i = 0; i < 2 * n; i++) {
      low[i % 2] = Math.min(low[i % 2], xy[i]);
      high[i % 2] = Math.max(high[i % 2], xy[i]);
    }
    const size = [0, 1].map((axis) => Math.max(1e-3, high[axis] - low[axis]));
    return { size, middle: [0, 1].map((axis) => low[axis] + size[axis] / 2) };
  }

  return { CELLS, readData, buildGrid, makeStamp, labelPlaces, boxOf };
})();
