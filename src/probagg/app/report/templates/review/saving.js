'use strict';

// Saves the review after each change. While a request is under way, only the latest change waits.
// `report` is called with 'saving', 'saved', or 'failed' and the error.

import { toJson } from './model.js';

export class SavingError extends Error {
  constructor(message, stale) {
    super(message);
    this.stale = stale;
  }
}

export async function post(address, value) {
  let answer;
  try {
    answer = await fetch(address, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify(value),
    });
  } catch {
    throw new SavingError('probagg does not respond. If it has stopped, start it again.', false);
  }
  const body = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new SavingError(body.error ?? answer.statusText, answer.status === 409);
  return body;
}

export function createSaver(version, report) {
  let waiting = null;
  let current = Promise.resolve(true);
  let busy = false;

  async function run() {
    busy = true;
    report('saving');
    try {
      while (waiting) {
        const review = waiting;
        ({ version } = await post('/api/review', { version, review: toJson(review) }));
        if (waiting === review) waiting = null;
      }
      report('saved');
    } catch (error) {
      report('failed', error);
    } finally {
      busy = false;
    }
    return !waiting;
  }

  return {
    save(review) {
      waiting = review;
      if (!busy) current = run();
      return current;
    },
    retry: () => (busy || !waiting ? current : (current = run())),
    settled: () => current,
    forget() { waiting = null; },
    get unsaved() { return waiting !== null; },
  };
}
