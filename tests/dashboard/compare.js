// Two pictures against each other: `compare(now, accepted)`, and `packed(now)`, how one is kept.
// Decides: what of a picture counts, which is two things. A cell, the mean of 6 by 6 pixels, is in the other
// picture too, there or up to 2 pixels beside it; each picture is looked for in the other, since what is gone
// leaves a place that is as empty as the places beside it. A stretch of 24 pixels of one colour, as a border is,
// has that colour in the other picture, unless it is no stretch there. So letters that are smoothed otherwise
// are the same, and one that is missing, another colour, a border that is gone are not.
// Never: says how much may differ.
(() => {
  const [CELL, STEP, BESIDE] = [6, 3, 2];
  const [STRETCH, STRETCH_STEP] = [24, 8];
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

  /** The cells of one picture that are nowhere near in another: [x, y, width, height, levels] each. */
  function cellsOff(ours, theirs, [width, height], least) {
    const off = [];
    for (let y = BESIDE; y + CELL + BESIDE <= height; y += STEP) {
      for (let x = BESIDE; x + CELL + BESIDE <= width; x += STEP) {
        const at = (dx, dy) => {
          let most = 0;
          for (let channel = 0; channel < 3; channel += 1)
            most = Math.max(most, Math.abs(theirs[channel](x + dx, y + dy) - ours[channel](x, y)));
          return most;
        };
        let nearest = at(0, 0);
        for (let dy = -BESIDE; dy <= BESIDE && nearest > least; dy += 1)
          for (let dx = -BESIDE; dx <= BESIDE && nearest > least; dx += 1) nearest = Math.min(nearest, at(dx, dy));
        if (nearest > least) off.push([x, y, CELL, CELL, Math.round(nearest)]);
      }
    }
    return off;
  }

  /** A picture as lines that lie along one axis, and for each pixel how many before it on its line are the same. */
  function stretches({ data, width, height }, flat) {
    const [long, lines] = flat ? [width, height] : [height, width];
    const words = new Uint32Array(data.buffer);
    const index = (at, line) => (flat ? line * width + at : at * width + line);
    const same = new Uint16Array(long * lines);
    for (let line = 0; line < lines; line += 1)
      for (let at = 1; at < long; at += 1)
        if (words[index(at, line)] === words[index(at - 1, line)])
          same[line * long + at] = same[line * long + at - 1] + 1;
    const isOne = (at, line) => same[line * long + at] >= STRETCH - 1;
    return { isOne, pixel: (at, line) => words[index(at, line)] };
  }

  /** How far two pixels are apart, in levels of the channel where they are most. */
  function apart(one, other) {
    const channel = (shift) => Math.abs(((one >> shift) & 255) - ((other >> shift) & 255));
    return Math.max(channel(0), channel(8), channel(16));
  }

  /** The stretches of one picture that have another colour in another, along one axis. */
  function stretchesOff(one, other, flat, [width, height], least) {
    const [ours, theirs] = [stretches(one, flat), stretches(other, flat)];
    const [long, lines] = flat ? [width, height] : [height, width];
    const off = [];
    for (let line = BESIDE; line + BESIDE < lines; line += 1) {
      for (let at = STRETCH - 1; at < long; at += STRETCH_STEP) {
        if (!ours.isOne(at, line) || !theirs.isOne(at, line)) continue;
        let nearest = 255;
        for (let far = 0; far <= 2 * BESIDE && nearest > least; far += 1) {
          const beside = far % 2 ? (far + 1) / 2 : -far / 2;
          if (theirs.isOne(at, line + beside))
            nearest = Math.min(nearest, apart(ours.pixel(at, line), theirs.pixel(at, line + beside)));
        }
        const from = at - STRETCH + 1;
        if (nearest > least) off.push(flat ? [from, line, STRETCH, 1, nearest] : [line, from, 1, STRETCH, nearest]);
      }
    }
    return off;
  }

  /** What is off by more than so many levels: {size, wanted, off: [[x, y, width, height, levels]]}. */
  async function compare(now, accepted, cellsLeast, stretchesLeast) {
    const pictures = [await pixels(now), await pixels(accepted)];
    const [one, other] = pictures;
    const size = [Math.min(one.width, other.width), Math.min(one.height, other.height)];
    const means = pictures.map((picture) => [0, 1, 2].map((channel) => summed(picture, channel)));
    const off = [];
    for (const [a, b] of [[0, 1], [1, 0]]) {
      off.push(...cellsOff(means[a], means[b], size, cellsLeast));
      for (const flat of [true, false])
        off.push(...stretchesOff(pictures[a], pictures[b], flat, size, stretchesLeast));
    }
    const told = { size: [one.width, one.height], wanted: [other.width, other.height], off };
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
    for (const [x, y, width, height] of off) context.fillRect(x, y, width, height);
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
