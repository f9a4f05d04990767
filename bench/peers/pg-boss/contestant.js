import pg from 'pg';
import { PgBoss } from 'pg-boss';

import { administer, contest, DATABASE_URL, inBatches, payload } from '../node-contest.mjs';
import manifest from './package.json' with { type: 'json' };

const QUEUE = 'contest';
const WORKERS = 2;
const BATCH = 1000;
const FILL_BATCH = 1000;
// Priorities and order by time are off: nobody asked for them, and they cost a sort of the backlog per fetch.
const FETCH = { batchSize: BATCH, pollingIntervalSeconds: 0.5, priority: false, orderByCreatedOn: false };

let boss = null;
let workers = [];

const contestant = {
  about: {
    name: 'pg-boss',
    version: manifest.dependencies['pg-boss'],
    settings: `${WORKERS} workers, batch ${BATCH}, no priority, no order, own partition, notifyWorker after a commit`,
  },

  async prepare() {
    await boss?.stop({ graceful: false });
    boss = null;
    await administer(pg, ['DROP SCHEMA IF EXISTS pgboss CASCADE']);
    await (await running()).createQueue(QUEUE, { partition: true });
  },

  async clear() {
    await (await running()).deleteAllJobs();
  },

  async enqueue(client, numbers) {
    const db = { executeSql: (text, values) => client.query(text, values) };
    if (numbers.length === 1) await boss.send(QUEUE, payload(numbers[0]), { db });
    else await boss.insert(QUEUE, numbers.map(message), { db });
  },

  fill: (first, count) =>
    inBatches(first, count, FILL_BATCH, (numbers) => boss.insert(QUEUE, numbers.map(message))),

  async ready() {
    await running();
  },

  async work(tally) {
    for (let index = 0; index < WORKERS; index += 1) {
      const id = await boss.work(QUEUE, FETCH, async (messages) => {
        // A full batch means that more are waiting: without a word the worker would sleep until its next poll.
        if (messages.length === BATCH) boss.notifyWorker(id);
        for (const message of messages) tally.message(message.data.n);
      });
      workers.push(id);
    }
    return async () => {
      workers = [];
      await boss.offWork(QUEUE, { wait: true });
    };
  },

  // One worker is enough: told while it is busy, it looks again at once when it is done.
  committed() {
    if (workers.length > 0) boss.notifyWorker(workers[0]);
  },
};

const message = (number) => ({ data: payload(number) });

async function running() {
  if (boss === null) {
    boss = new PgBoss({ connectionString: DATABASE_URL, max: WORKERS + 2, schedule: false });
    boss.on('error', (error) => console.error(error));
    await boss.start();
  }
  return boss;
}

await contest(pg, contestant);
