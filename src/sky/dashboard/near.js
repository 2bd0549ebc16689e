// What an address may have meant.
// Decides: when two names are near. Never: goes anywhere.

/** A part of a path as text; one that is none is taken as it stands. */
export function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

const pairs = (text) => [...text].slice(1).map((letter, at) => [...text][at] + letter);

/** The name that has most pairs of letters in common with a word, if that is at least half of those of both. */
export function nearest(word, names) {
  const had = pairs(word.toLowerCase());
  const shares = names.filter(Boolean).map((name) => {
    const own = pairs(name);
    return [(2 * own.filter((pair) => had.includes(pair)).length) / (own.length + had.length), name];
  });
  const [share, name] = shares.reduce((best, one) => (one[0] > best[0] ? one : best), [0, null]);
  return share >= 0.5 ? name : null;
}
