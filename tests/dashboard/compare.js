// Two pictures against each other: `compare(now, accepted)`, and `packed(now)`, how one is kept.
// Decides: what of a picture counts. A cell is the mean of 8 by 8 pixels, every 4 pixels, and is held against
// the accepted picture at the same place or up to 2 pixels beside it, where it is most alike: letters that
// are smoothed otherwise or stand a pixel off are the same, what is not there or has another colour is not.
// Never: says how much may differ.
(() => {
  const [CELL, STEP, BESIDE] = [8, 4, 2];
  const FAINT = 0.75;

  async function pixels(base64) {
    const bytes = Uint8Array.from(atob(base64), (one) => one.charCodeAt(0));
    const image = await createImageBitmap(new Blob([bytes], { type: "image/png" }));
    const context = new OffscreenCanvas(image.width, image.height).getContext("2d", { willReadFrequently: true });
    context.drawImage(image, 0, 0);
    return context.getImageData(0, 0, image.width, image.height);
  }

  /** Sums of one channel over everything above and left of each pixel. */
  function summed({ data, width, height }, channel) {
    const sums = new Int32Array((width + 1) * (height + 1));
    for (let y = 0; y < height; y += 1) {
      let row = 0;
      for (let x = 0; x < width; x += 1) {
        row += data[(y * width + x) * 4 + channel];
        sums[(y + 1) * (width + 1) + x + 1] = sums[y * (width + 1) + x + 1] + row;
      }
    }
    return (x, y) => {
      const [above, below] = [y * (width + 1) + x, (y + CELL) * (width + 1) + x];
      return (sums[below + CELL] - sums[below] - sums[above + CELL] + sums[above]) / (CELL * CELL);
    };
  }

  /** How far each cell is off: {size, wanted, off: [[x, y, levels]], cells}; cells that are not off are left out. */
  async function compare(now, accepted, least) {
    const [one, other] = [await pixels(now), await pixels(accepted)];
    const [width, height] = [Math.min(one.width, other.width), Math.min(one.height, other.height)];
    const [ours, theirs] = [one, other].map((picture) => [0, 1, 2].map((channel) => summed(picture, channel)));
    const off = [];
    let cells = 0;
    for (let y = BESIDE; y + CELL + BESIDE <= height; y += STEP) {
      for (let x = BESIDE; x + CELL + BESIDE <= width; x += STEP) {
        cells += 1;
        const cell = ours.map((mean) => mean(x, y));
        let nearest = 255;
        const at = (dx, dy) =>
          Math.max(...theirs.map((mean, channel) => Math.abs(mean(x + dx, y + dy) - cell[channel])));
        nearest = at(0, 0);
        for (let dy = -BESIDE; dy <= BESIDE && nearest > least; dy += 1)
          for (let dx = -BESIDE; dx <= BESIDE && nearest > least; dx += 1) nearest = Math.min(nearest, at(dx, dy));
        if (nearest > least) off.push([x, y, Math.round(nearest)]);
      }
    }
    const told = { size: [one.width, one.height], wanted: [other.width, other.height], off, cells };
    return off.length ? { ...told, difference: await drawn(one, off) } : told;
  }

  /** The picture, faint, with what differs in red. */
  async function drawn(picture, off) {
    const canvas = new OffscreenCanvas(picture.width, picture.height);
    const context = canvas.getContext("2d");
    context.putImageData(picture, 0, 0);
    context.fillStyle = `rgb(255 255 255 / ${FAINT})`;
    context.fillRect(0, 0, picture.width, picture.height);
    context.fillStyle = "rgb(255 0 0 / 0.4)";
    for (const [x, y] of off) context.fillRect(x, y, CELL, CELL);
    return base64(new Uint8Array(await (await canvas.convertToBlob()).arrayBuffer()));
  }

  function base64(bytes) {
    let text = "";
    for (let at = 0; at < bytes.length; at += 32768) text += String.fromCharCode(...bytes.subarray(at, at + 32768));
    return btoa(text);
  }

  /** A picture in few colours: its size, the colours, and which each pixel has. The most frequent colours stay as
   *  they are, and of others that are alike the most frequent one. */
  async function packed(now, exact, most) {
    const { data, width, height } = await pixels(now);
    const counts = new Map();
    const colour = (at) => (data[at] << 16) | (data[at + 1] << 8) | data[at + 2];
    for (let at = 0; at < data.length; at += 4) counts.set(colour(at), (counts.get(colour(at)) ?? 0) + 1);
    const frequent = [...counts].sort((a, b) => b[1] - a[1]).map(([one]) => one);
    const kept = frequent.slice(0, exact);
    const alike = new Set();
    for (const one of frequent.slice(exact)) {
      if (kept.length < most && !alike.has(one & 0xf0f0f0)) kept.push(one);
      alike.add(one & 0xf0f0f0);
    }
    const parts = (one) => [one >> 16, (one >> 8) & 255, one & 255];
    const held = kept.map(parts);
    const nearest = new Map();
    for (const one of counts.keys()) {
      const mine = parts(one);
      const far = held.map((other) => other.reduce((sum, part, at) => sum + (part - mine[at]) ** 2, 0));
      nearest.set(one, far.indexOf(Math.min(...far)));
    }
    const indexes = new Uint8Array(width * height);
    for (let at = 0; at < indexes.length; at += 1) indexes[at] = nearest.get(colour(at * 4));
    return { width, height, colours: held.flat(), pixels: base64(indexes) };
  }

  Object.assign(window, { compare, packed });
})();
