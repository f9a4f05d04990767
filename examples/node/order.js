// Places an order, and enqueues the message about it in the same transaction.
//
//     node order.js URL [--id 1] [--rollback]
//
// URL is postgres://… or mysql://…; the variable DATABASE_URL takes its place when it is missing.
"use strict";

const { randomUUID } = require("node:crypto");
const { parseArgs } = require("node:util");

const ORDERS =
  "CREATE TABLE IF NOT EXISTS orders (id BIGINT PRIMARY KEY, customer VARCHAR(100), total_cents BIGINT)";

function newOrder(number) {
  return {
    number,
    customer: "customer-7",
    totalCents: 999,
    payload: JSON.stringify({ id: number, total_cents: 999 }),
    headers: { source: "node", attempt: 1 },
    correlationId: `request-${number}`,
    // Drawn before the transaction: whoever does all of it again after an unknown commit uses the same id again.
    messageId: randomUUID(),
  };
}

async function postgres(url, order, rollback) {
  const { Client } = require("pg");
  const client = new Client({ connectionString: url });
  await client.connect();
  try {
    await client.query(ORDERS);
    await client.query("BEGIN");
    await client.query("INSERT INTO orders VALUES ($1, $2, $3)", [order.number, order.customer, order.totalCents]);
    await client.query(
      `SELECT pillarbox.enqueue('order.created', $1::text, key => $2, message_id => $3, headers => $4,
                                correlation_id => $5)`,
      [order.payload, order.customer, order.messageId, order.headers, order.correlationId],
    );
    await client.query(rollback ? "ROLLBACK" : "COMMIT");
    // After the commit, never inside the transaction. Without it the message is found by the next poll.
    await client.query("SELECT pg_notify('pillarbox.pillarbox.outbox', '')");
    const count = async (sql, value) => Number((await client.query(sql, [value])).rows[0].count);
    return [
      await count("SELECT count(*) AS count FROM orders WHERE id = $1", order.number),
      await count("SELECT count(*) AS count FROM pillarbox.outbox WHERE message_id = $1", order.messageId),
    ];
  } finally {
    // Whatever was open is rolled back.
    await client.end();
  }
}

async function mysql(url, order, rollback) {
  const connection = await require("mysql2/promise").createConnection(url);
  try {
    await connection.query(ORDERS);
    await connection.beginTransaction();
    await connection.execute("INSERT INTO orders VALUES (?, ?, ?)", [
      order.number,
      order.customer,
      order.totalCents,
    ]);
    const options = { message_id: order.messageId, headers: order.headers, correlation_id: order.correlationId };
    await connection.execute("CALL pillarbox_outbox_enqueue('order.created', ?, ?, ?)", [
      order.payload,
      order.customer,
      JSON.stringify(options),
    ]);
    await (rollback ? connection.rollback() : connection.commit());
    const count = async (sql, value) => Number((await connection.execute(sql, [value]))[0][0].count);
    return [
      await count("SELECT count(*) AS count FROM orders WHERE id = ?", order.number),
      await count(
        "SELECT count(*) AS count FROM pillarbox_outbox WHERE message_id = UNHEX(REPLACE(?, '-', ''))",
        order.messageId,
      ),
    ];
  } finally {
    await connection.end();
  }
}

async function main() {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: { id: { type: "string", default: "1" }, rollback: { type: "boolean", default: false } },
  });
  const url = positionals[0] ?? process.env.DATABASE_URL ?? "";
  const ways = { postgres, postgresql: postgres, mysql };
  const way = ways[url.split(":")[0]];
  if (!way) {
    throw new Error("expected an address: postgres://… or mysql://…");
  }
  const order = newOrder(Number(values.id));
  const [orders, messages] = await way(url, order, values.rollback);
  const end = values.rollback ? "rolled back" : "committed";
  console.log(`order ${order.number}: ${end}; the database has ${orders} order and ${messages} message of it`);
}

main().catch((error) => {
  console.error(`order: ${error.message}`);
  process.exitCode = 1;
});
