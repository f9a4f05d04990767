"""Places an order, and enqueues the message about it in the same transaction.

    python order.py URL [--id 1] [--rollback]

URL is postgres://…, mysql://… or sqlite:FILE; the variable DATABASE_URL takes its place when it is missing.
"""

import argparse
import json
import os
import sqlite3
import uuid
from urllib.parse import unquote, urlsplit

ORDERS = "CREATE TABLE IF NOT EXISTS orders (id BIGINT PRIMARY KEY, customer VARCHAR(100), total_cents BIGINT)"


class Order:
    def __init__(self, number):
        self.number = number
        self.customer = "customer-7"
        self.total_cents = 999
        self.payload = json.dumps({"id": number, "total_cents": self.total_cents})
        self.headers = json.dumps({"source": "python", "attempt": 1})
        self.correlation_id = f"request-{number}"
        # It follows from the order, so that doing all of it again after an unknown commit enqueues no second message.
        self.message_id = uuid.uuid5(uuid.NAMESPACE_URL, f"https://shop.example/orders/{number}")


def postgres(url, order, rollback):
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(ORDERS)
        with connection.transaction(force_rollback=rollback):
            connection.execute(
                "INSERT INTO orders VALUES (%s, %s, %s)", (order.number, order.customer, order.total_cents)
            )
            connection.execute(
                "SELECT pillarbox.enqueue('order.created', %s, key => %s, message_id => %s, headers => %s,"
                " correlation_id => %s)",
                (order.payload, order.customer, order.message_id, order.headers, order.correlation_id),
            )
        # After the commit, never inside the transaction. Without it the message is found by the next poll.
        connection.execute("SELECT pg_notify('pillarbox.pillarbox.outbox', '')")
        return [connection.execute(count).fetchone()[0] for count in counts("pillarbox.outbox", order)]


def mysql(url, order, rollback):
    import pymysql

    at = urlsplit(url)
    connection = pymysql.connect(
        host=at.hostname, port=at.port or 3306, user=unquote(at.username or ""), password=unquote(at.password or ""),
        database=at.path.lstrip("/"), autocommit=False,
    )
    with connection, connection.cursor() as cursor:
        cursor.execute(ORDERS)
        connection.begin()
        cursor.execute("INSERT INTO orders VALUES (%s, %s, %s)", (order.number, order.customer, order.total_cents))
        options = {
            "message_id": str(order.message_id),
            "headers": json.loads(order.headers),
            "correlation_id": order.correlation_id,
        }
        cursor.execute(
            "CALL pillarbox_outbox_enqueue('order.created', %s, %s, %s)",
            (order.payload, order.customer, json.dumps(options)),
        )
        connection.rollback() if rollback else connection.commit()
        found = []
        for count in counts("pillarbox_outbox", order):
            cursor.execute(count)
            found.append(cursor.fetchone()[0])
        return found


def sqlite(url, order, rollback):
    # Without isolation_level the module begins no transactions of its own.
    connection = sqlite3.connect(url.removeprefix("sqlite:"), timeout=30, isolation_level=None)
    connection.execute(ORDERS)
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("INSERT INTO orders VALUES (?, ?, ?)", (order.number, order.customer, order.total_cents))
    connection.execute(
        "INSERT INTO pillarbox_outbox (message_id, topic, payload, message_key, headers, correlation_id, content_type)"
        " VALUES (?, 'order.created', ?, ?, ?, ?, 'application/json') ON CONFLICT (message_id) DO NOTHING",
        (order.message_id.bytes, order.payload, order.customer, order.headers, order.correlation_id),
    )
    connection.execute("ROLLBACK" if rollback else "COMMIT")
    return [connection.execute(count).fetchone()[0] for count in counts("pillarbox_outbox", order)]


def counts(outbox, order):
    """What the database has of it now."""
    orders = f"SELECT count(*) FROM orders WHERE id = {order.number}"
    return [orders, f"SELECT count(*) FROM {outbox} WHERE correlation_id = '{order.correlation_id}'"]


def main():
    parser = argparse.ArgumentParser(description="Places an order together with the message about it.")
    parser.add_argument("url", nargs="?", default=os.environ.get("DATABASE_URL"))
    parser.add_argument("--id", type=int, default=1, help="the order's number")
    parser.add_argument("--rollback", action="store_true", help="changes its mind in the end")
    asked = parser.parse_args()
    ways = {"postgres": postgres, "postgresql": postgres, "mysql": mysql, "mariadb": mysql, "sqlite": sqlite}
    way = ways.get((asked.url or "").split(":")[0])
    if way is None:
        parser.error("expected an address: postgres://…, mysql://… or sqlite:FILE")
    orders, messages = way(asked.url, Order(asked.id), asked.rollback)
    print(f"order {asked.id}: {'rolled back' if asked.rollback else 'committed'}; "
          f"the database has {orders} order and {messages} message of it")


if __name__ == "__main__":
    main()
