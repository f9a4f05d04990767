// One Graphile Worker instance as its own performance page sets it up.

import { DATABASE_URL } from '../node-contest.mjs';

// Read by the library when it is loaded, hence before: a line of log per message is not what is measured.
process.env.NO_LOG_SUCCESS = '1';
const { Logger, run, runMigrations } = await import('graphile-worker');

export const TASK = 'contest';
export const CONCURRENCY = 24;
export const LOCAL_QUEUE = 500;

const silent = new Logger(() => (level, message) => {
  if (level === 'error') console.error(message);
});

export const migrate = () => runMigrations({ connectionString: DATABASE_URL, logger: silent });

/** Resolves to a function that stops the instance and resolves when what it handled is settled. */
export async function start(tally) {
  const runner = await run({
    preset: {
      worker: {
        connectionString: DATABASE_URL,
        concurrentJobs: CONCURRENCY,
        maxPoolSize: CONCURRENCY + 1,
        localQueue: { size: LOCAL_QUEUE },
        completeJobBatchDelay: 0,
        failJobBatchDelay: 0,
        logger: silent,
      },
    },
    noHandleSignals: true,
    crontab: '',
    taskList: { [TASK]: async (payload) => tally.message(payload.n) },
  });
  return () => runner.stop();
}
