// A worker process of a drain: starts and stops when its parent says so, and reports how many it handled.

import { start } from './runner.js';

const REPORT_MS = 10;

let handled = 0;
let stop = null;

function report() {
  if (handled > 0) process.send({ handled });
  handled = 0;
}

process.on('message', async (command) => {
  if (command === 'start') {
    const timer = setInterval(report, REPORT_MS);
    const end = await start({ message: () => (handled += 1) });
    stop = async () => {
      await end();
      clearInterval(timer);
    };
    process.send({ started: true });
  } else {
    await stop();
    report();
    process.send({ stopped: true });
  }
});
process.on('disconnect', () => process.exit(0));
process.send({ ready: true });
