import { fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';

import pg from 'pg';

import { administer, contest, DATABASE_URL, inBatches, payload } from '../node-contest.mjs';
import manifest from './package.json' with { type: 'json' };
import { CONCURRENCY, LOCAL_QUEUE, migrate, start, TASK } from './runner.js';

const PROCESSES = 4;
const FILL_BATCH = 1000;
const WORKER = fileURLToPath(new URL('worker.js', import.meta.url));

const pool = new pg.Pool({ connectionString: DATABASE_URL, max: 4 });
const crew = [];

const contestant = {
  about: {
    name: 'graphile-worker',
    version: manifest.dependencies['graphile-worker'],
    settings:
      `concurrentJobs ${CONCURRENCY}, localQueue ${LOCAL_QUEUE}, completeJobBatchDelay 0, ` +
      `${PROCESSES} processes to drain`,
  },

  async prepare() {
    await administer(pg, ['DROP SCHEMA IF EXISTS graphile_worker CASCADE']);
    await migrate();
  },

  async clear() {
    await administer(pg, ['TRUNCATE graphile_worker._private_jobs']);
  },

  async enqueue(client, numbers) {
    if (numbers.length === 1) {
      const text = 'SELECT graphile_worker.add_job($1, $2::json)';
      await client.query({ name: 'add_job', text, values: [TASK, JSON.stringify(payload(numbers[0]))] });
    } else {
      await addAll(client, numbers);
    }
  },

  fill: (first, count) => inBatches(first, count, FILL_BATCH, (numbers) => addAll(pool, numbers)),

  async ready(workload) {
    if (workload !== 'drain') return;
    while (crew.length < PROCESSES) {
      const worker = fork(WORKER);
      await once(worker, 'message');
      crew.push(worker);
    }
  },

  work: (tally, workload) => (workload === 'drain' ? startCrew(tally) : start(tally)),
};

async function addAll(client, numbers) {
  const specs = numbers.map((number) => ({ identifier: TASK, payload: payload(number) }));
  const text = `SELECT count(*) FROM graphile_worker.add_jobs(
    array(SELECT json_populate_recordset(null::graphile_worker.job_spec, $1::json)))`;
  await client.query({ name: 'add_jobs', text, values: [JSON.stringify(specs)] });
}

async function startCrew(tally) {
  const count = (report) => tally.add(report.handled ?? 0);
  for (const worker of crew) worker.on('message', count);
  await tellCrew('start', 'started');
  return async () => {
    await tellCrew('stop', 'stopped');
    for (const worker of crew) worker.off('message', count);
  };
}

function tellCrew(command, answer) {
  return Promise.all(crew.map((worker) => new Promise((resolve) => {
    const listen = (report) => {
      if (!report[answer]) return;
      worker.off('message', listen);
      resolve();
    };
    worker.on('message', listen);
    worker.send(command);
  })));
}

await contest(pg, contestant);
