// What contestants for Node share: the protocol, the writers, the pacing and the figures.
//
// A contestant is an object:
//   about                     { name, version, settings }
//   prepare(), clear()        its own tables, made anew or emptied
//   enqueue(client, numbers)  messages in the transaction that the client has open
//   fill(first, count)        messages as fast as it likes
//   ready(workload)           what workers need before they are timed (optional)
//   work(tally, workload)     starts workers; resolves to a function that stops them, which resolves
//                             when all that they handled is settled in the database
//   committed()               told of each commit by a writer in this process (optional)

import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { performance } from 'node:perf_hooks';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';

export const DATABASE_URL = process.env.CONTEST_DATABASE_URL;

const BUSINESS = 'CREATE TABLE business (id bigserial PRIMARY KEY, payload text NOT NULL)';
const PAYLOAD_BYTES = 200;
const FILLERS = 4;
const LATENCY_WRITERS = 4;
const STEADY_WRITERS = 16;
const WARM_UP_SECONDS = 1;
const PATIENCE_MS = 120_000;

/** An object that is exactly 200 bytes of JSON. */
export function payload(number) {
  const bare = JSON.stringify({ n: number, pad: '' }).length;
  return { n: number, pad: 'x'.repeat(PAYLOAD_BYTES - bare) };
}

/** Runs statements on a connection of their own. */
export async function administer(pg, statements) {
  const client = new pg.Client({ connectionString: DATABASE_URL });
  await client.connect();
  try {
    for (const statement of statements) await client.query(statement);
  } finally {
    await client.end();
  }
}

/** Hands out numbers in batches, a few batches at once. */
export async function inBatches(first, count, size, write) {
  const end = first + count;
  let next = first;
  const filler = async () => {
    while (next < end) {
      const from = next;
      next = Math.min(from + size, end);
      await write(Array.from({ length: next - from }, (_, index) => from + index));
    }
  };
  await Promise.all(Array.from({ length: FILLERS }, filler));
}

/** What was handled: a count, and for who wants it the number of each message when its handler starts. */
export class Tally {
  handled = 0;
  #each;
  #goal = Infinity;
  #reached = null;

  constructor(each = null) {
    this.#each = each;
  }

  message(number) {
    if (this.#each !== null) this.#each(number);
    this.add(1);
  }

  add(count) {
    this.handled += count;
    if (this.handled >= this.#goal) {
      this.#goal = Infinity;
      this.#reached();
    }
  }

  /** Resolves when so many were handled; rejects when none was for two minutes. */
  async reach(goal) {
    if (this.handled >= goal) return;
    const reached = new Promise((resolve) => {
      this.#goal = goal;
      this.#reached = () => resolve(true);
    });
    for (let before = -1; before < this.handled; ) {
      before = this.handled;
      const timer = new AbortController();
      const late = sleep(PATIENCE_MS, false, { signal: timer.signal }).catch(() => false);
      const done = await Promise.race([reached, late]);
      timer.abort();
      if (done) return;
    }
    throw new Error(`only ${this.handled} of ${goal} messages were handled`);
  }
}

/**
 * Runs a module in the Node that is among the contestant's packages: libraries ask for a newer one than systems have.
 * `index.js` of a contestant does only this.
 */
export function launch(module) {
  const own = fileURLToPath(new URL('node_modules/.bin/node', module));
  const child = spawn(existsSync(own) ? own : process.execPath, [fileURLToPath(module)], { stdio: 'inherit' });
  child.on('exit', (code) => process.exit(code ?? 1));
}

/** Answers commands until stdin ends. `pg` comes from the contestant, whose packages these are. */
export async function contest(pg, contestant) {
  const contest = new Contest(pg, contestant);
  for await (const line of createInterface({ input: process.stdin })) {
    if (line.trim() === '') continue;
    let answer;
    try {
      answer = await contest.obey(JSON.parse(line));
    } catch (error) {
      answer = { error: error.message };
    }
    process.stdout.write(`${JSON.stringify(answer)}\n`);
  }
  process.exit(0);
}

class Contest {
  #pg;
  #contestant;
  #next = 0;

  constructor(pg, contestant) {
    this.#pg = pg;
    this.#contestant = contestant;
  }

  async obey(command) {
    switch (command.do) {
      case 'hello':
        return { language: 'node', ...this.#contestant.about };
      case 'prepare':
        await administer(this.#pg, ['DROP TABLE IF EXISTS business', BUSINESS]);
        await this.#contestant.prepare();
        return {};
      case 'clear':
        await administer(this.#pg, ['TRUNCATE business']);
        await this.#contestant.clear();
        return {};
      case 'enqueue':
        return this.#enqueue(command);
      case 'fill':
        return this.#fill(command);
      case 'drain':
        return this.#drain(command);
      case 'latency':
        return this.#latency(command);
      case 'steady':
        return this.#steady(command);
      default:
        throw new Error(`unknown command ${command.do}`);
    }
  }

  async #enqueue({ writers, batch, count }) {
    const first = this.#take(count);
    let written = 0;
    const next = () => {
      if (written >= count) return null;
      const from = first + written;
      const size = Math.min(batch, count - written);
      written += size;
      return Array.from({ length: size }, (_, index) => from + index);
    };
    return this.#withClients(writers, async (clients) => {
      const start = performance.now();
      await Promise.all(clients.map(async (client) => {
        for (let numbers = next(); numbers !== null; numbers = next()) await this.#transact(client, numbers);
      }));
      return { seconds: secondsSince(start) };
    });
  }

  async #fill({ count }) {
    const first = this.#take(count);
    const start = performance.now();
    await this.#contestant.fill(first, count);
    return { seconds: secondsSince(start) };
  }

  /** Workers may handle a few more than were asked for before they stop; those are not given away as free. */
  async #drain({ count }) {
    await this.#contestant.ready?.('drain');
    const tally = new Tally();
    const start = performance.now();
    const stop = await this.#contestant.work(tally, 'drain');
    let seconds;
    try {
      await tally.reach(count);
    } finally {
      await stop();
      seconds = secondsSince(start);
    }
    return { seconds: seconds * (count / tally.handled) };
  }

  async #latency({ rate, seconds, writers = LATENCY_WRITERS }) {
    const time = seconds + WARM_UP_SECONDS;
    const warmUp = Math.floor(rate * WARM_UP_SECONDS);
    const first = this.#next;
    const commits = [];
    const starts = [];
    const tally = new Tally((number) => (starts[number - first] = performance.now()));
    await this.#working(tally, 'latency', writers, async (clients) => {
      await this.#paced(clients, rate, time, (index) => (commits[index] = performance.now()));
      await tally.reach(commits.length);
    });
    return figures(commits.slice(warmUp).map((commit, index) => (starts[warmUp + index] - commit) * 1000));
  }

  async #steady({ rate, seconds, writers = STEADY_WRITERS }) {
    let written = 0;
    const tally = new Tally();
    return this.#working(tally, 'steady', writers, async (clients) => {
      const writing = this.#paced(clients, rate, seconds, () => (written += 1));
      await sleep(seconds * 1000);
      const delivered = tally.handled;
      const backlog = Math.max(0, written - delivered);
      const answer = { written, delivered, backlog, wanted: Math.floor(rate * seconds) };
      await writing;
      return answer;
    });
  }

  async #working(tally, workload, writers, use) {
    await this.#contestant.ready?.(workload);
    const stop = await this.#contestant.work(tally, workload);
    try {
      return await this.#withClients(writers, use);
    } finally {
      await stop();
    }
  }

  /** Open loop: each write is due at its own time and starts then, or as soon as a client is free. */
  async #paced(clients, rate, seconds, written) {
    const count = Math.floor(rate * seconds);
    const first = this.#take(count);
    const start = performance.now();
    const end = start + seconds * 1000;
    let next = 0;
    await Promise.all(clients.map(async (client) => {
      while (next < count) {
        const index = next;
        next += 1;
        const wait = start + (index * 1000) / rate - performance.now();
        if (wait > 0) await sleep(wait);
        if (performance.now() >= end) return;
        await this.#transact(client, [first + index]);
        written(index);
        this.#contestant.committed?.();
      }
    }));
  }

  async #transact(client, numbers) {
    await client.query('BEGIN');
    await client.query({
      name: 'business',
      text: 'INSERT INTO business (payload) VALUES ($1)',
      values: ['an order of two books'],
    });
    await this.#contestant.enqueue(client, numbers);
    await client.query('COMMIT');
  }

  async #withClients(count, use) {
    const clients = Array.from({ length: count }, () => new this.#pg.Client({ connectionString: DATABASE_URL }));
    await Promise.all(clients.map((client) => client.connect()));
    try {
      return await use(clients);
    } finally {
      await Promise.all(clients.map((client) => client.end()));
    }
  }

  /** Numbers are never used twice, so that what an earlier command left is not taken for this one's. */
  #take(count) {
    const first = this.#next;
    this.#next += count;
    return first;
  }
}

function figures(latencies) {
  if (latencies.length === 0) throw new Error('the writers are too slow for this rate: nothing came after the warm-up');
  const sorted = latencies.sort((one, other) => one - other);
  const at = (share) => sorted[Math.ceil(share * sorted.length) - 1];
  return { p50_us: at(0.5), p99_us: at(0.99), max_us: at(1), count: sorted.length };
}

function secondsSince(start) {
  return (performance.now() - start) / 1000;
}
