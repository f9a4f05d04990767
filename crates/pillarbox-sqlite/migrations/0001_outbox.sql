-- Two tables: what can be claimed or is leased (pillarbox_outbox), and what nobody may claim now: waiting, done, dead
-- (pillarbox_outbox_shelf). Claims scan the first by its key alone, so it needs no index on lease or due columns.
-- Times are microseconds since 1970, UTC. STRICT: a foreign writer's wrong type is refused, not stored.
-- The payload stands last: a scan then reads the front of each row and leaves the pages of large payloads alone.
CREATE TABLE pillarbox_outbox (
    id               INTEGER PRIMARY KEY AUTOINCREMENT,
    message_id       BLOB    NOT NULL DEFAULT (randomblob(16)),
    owner_token      BLOB,
    locked_until     INTEGER,
    fence            INTEGER NOT NULL DEFAULT 0,
    due_at           INTEGER,
    expires_at       INTEGER,
    attempts         INTEGER NOT NULL DEFAULT 0,
    lost_lease_count INTEGER NOT NULL DEFAULT 0,
    priority         INTEGER NOT NULL DEFAULT 0,
    created_at       INTEGER NOT NULL
        DEFAULT (CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000),
    topic            TEXT    NOT NULL,
    message_type     TEXT,
    aggregate_type   TEXT,
    aggregate_id     TEXT,
    tenant_id        TEXT,
    message_key      TEXT,
    key_hash         INTEGER,
    correlation_id   TEXT,
    causation_id     TEXT,
    content_type     TEXT,
    headers          TEXT,
    occurred_at      INTEGER,
    last_error       TEXT,
    payload          ANY     NOT NULL
) STRICT;

CREATE UNIQUE INDEX pillarbox_outbox_message_id ON pillarbox_outbox (message_id);
-- For the order of messages with a key; those without are not in it.
CREATE INDEX pillarbox_outbox_lane ON pillarbox_outbox (message_key, id) WHERE message_key IS NOT NULL;
-- Keys to which messages came back, given back or replayed: such rows have the fence -1 until they are claimed again, and may
-- stand before one that is held. No row that is leased is ever in it.
CREATE INDEX pillarbox_outbox_back ON pillarbox_outbox (message_key) WHERE fence = -1 AND message_key IS NOT NULL;

-- Leases of rows that stand beside each other, none left out: a claim writes one row here instead of all of them. It holds for rows
-- without an owner of their own. Whatever is done to some of them in another way first spreads it over all of its rows.
CREATE TABLE pillarbox_outbox_lease (
    first_id     INTEGER PRIMARY KEY,
    last_id      INTEGER NOT NULL,
    fence        INTEGER NOT NULL,
    owner_token  BLOB    NOT NULL,
    locked_until INTEGER NOT NULL
) STRICT;

-- The live rows as if each had its lease in itself.
CREATE VIEW pillarbox_outbox_live AS
SELECT live.id, live.message_id, coalesce(live.owner_token, lease.owner_token) AS owner_token,
       coalesce(live.locked_until, lease.locked_until) AS locked_until, live.due_at, live.expires_at,
       live.attempts + (lease.first_id IS NOT NULL) AS attempts, live.lost_lease_count, live.priority, live.created_at, live.topic,
       live.message_type, live.aggregate_type, live.aggregate_id, live.tenant_id, live.message_key, live.correlation_id,
       live.causation_id, live.content_type, live.headers, live.occurred_at, live.last_error, live.payload
  FROM pillarbox_outbox AS live
  LEFT JOIN pillarbox_outbox_lease AS lease
    ON live.owner_token IS NULL
   AND lease.first_id = (SELECT max(first_id) FROM pillarbox_outbox_lease WHERE first_id <= live.id)
   AND lease.last_id >= live.id;

CREATE TABLE pillarbox_outbox_shelf (
    id               INTEGER PRIMARY KEY,
    message_id       BLOB    NOT NULL,
    state            TEXT    NOT NULL,
    wake_at          INTEGER,
    settled_at       INTEGER,
    settled_by       BLOB,
    is_receipt       INTEGER NOT NULL DEFAULT 0,
    due_at           INTEGER,
    expires_at       INTEGER,
    attempts         INTEGER NOT NULL DEFAULT 0,
    lost_lease_count INTEGER NOT NULL DEFAULT 0,
    priority         INTEGER NOT NULL DEFAULT 0,
    created_at       INTEGER NOT NULL,
    topic            TEXT    NOT NULL,
    message_type     TEXT,
    aggregate_type   TEXT,
    aggregate_id     TEXT,
    tenant_id        TEXT,
    message_key      TEXT,
    key_hash         INTEGER,
    correlation_id   TEXT,
    causation_id     TEXT,
    content_type     TEXT,
    headers          TEXT,
    occurred_at      INTEGER,
    last_error       TEXT,
    payload          ANY     NOT NULL
) STRICT;

CREATE UNIQUE INDEX pillarbox_outbox_shelf_message_id ON pillarbox_outbox_shelf (message_id);
CREATE INDEX pillarbox_outbox_shelf_waiting ON pillarbox_outbox_shelf (wake_at, id) WHERE state = 'pending';
CREATE INDEX pillarbox_outbox_shelf_dead ON pillarbox_outbox_shelf (id) WHERE state = 'dead';
CREATE INDEX pillarbox_outbox_shelf_done ON pillarbox_outbox_shelf (settled_at) WHERE state = 'done';
-- What may stand in the way of later messages of its key, or of a sequence: rows that were given back have `settled_by`.
CREATE INDEX pillarbox_outbox_shelf_lane ON pillarbox_outbox_shelf (message_key, id)
    WHERE message_key IS NOT NULL AND state <> 'done';
CREATE INDEX pillarbox_outbox_shelf_back ON pillarbox_outbox_shelf (id) WHERE state = 'pending' AND settled_by IS NOT NULL;

-- SQLite reads the clock of the machine, which can be set back; the latest time that was acted upon is kept here,
-- and the view answers the later of the two: time stands still until the clock has caught up, it never goes back.
CREATE TABLE pillarbox_outbox_clock (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    at  INTEGER NOT NULL
) STRICT;

INSERT INTO pillarbox_outbox_clock (one, at) VALUES (1, 0);

CREATE VIEW pillarbox_outbox_now (now) AS
SELECT max(at, CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000)
  FROM pillarbox_outbox_clock
 WHERE one = 1;
