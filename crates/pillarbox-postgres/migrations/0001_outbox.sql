-- The outbox: a small hot table of what can be claimed or is leased, and a shelf for all that nobody may claim now.
-- Leases change on every claim, so no index may hold a lease or due column of the hot table: the changes stay HOT
-- updates within their page, for which the fill factor leaves room (a leased row is 24 bytes longer). The shelf never
-- gets in a claim's way, however many messages are scheduled, done or dead.
CREATE SEQUENCE IF NOT EXISTS pillarbox.outbox_id;
-- The mark: no message with a key was ever claimed whose id is above it. A sequence, because those are seen before a commit.
CREATE SEQUENCE IF NOT EXISTS pillarbox.outbox_claimed INCREMENT BY 2048;

CREATE TABLE IF NOT EXISTS pillarbox.outbox (
    id               bigint      NOT NULL DEFAULT nextval('pillarbox.outbox_id') PRIMARY KEY,
    message_id       uuid        NOT NULL DEFAULT gen_random_uuid(),
    fence            bigint      NOT NULL DEFAULT 0,
    created_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    due_at           timestamptz,
    expires_at       timestamptz,
    locked_until     timestamptz,
    occurred_at      timestamptz,
    owner_token      uuid,
    attempts         integer     NOT NULL DEFAULT 0,
    lost_lease_count integer     NOT NULL DEFAULT 0,
    priority         smallint    NOT NULL DEFAULT 0,
    topic            text        NOT NULL,
    message_type     text,
    aggregate_type   text,
    aggregate_id     text,
    tenant_id        text,
    message_key      text        COLLATE "C",
    key_hash         bigint,
    correlation_id   text,
    causation_id     text,
    content_type     text,
    headers          jsonb,
    last_error       text,
    payload          bytea       NOT NULL
) WITH (
    fillfactor = 45,
    -- The table is small and all churn: vacuum it by count, not by share, and without pauses.
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_analyze_scale_factor = 0.5,
    autovacuum_vacuum_cost_delay = 0
);

CREATE UNIQUE INDEX IF NOT EXISTS outbox_message_id ON pillarbox.outbox (message_id);
-- For the order of messages with a key; those without are not in it.
CREATE INDEX IF NOT EXISTS outbox_lane ON pillarbox.outbox (message_key, id) WHERE message_key IS NOT NULL;

-- Leases that rows beside each other have together: those from the first to the last, none missing, that have no owner and no key, and
-- never had a lease of their own (their fence is 0). Their rows stay as they are until they go. None is longer than 2048 rows, so
-- that who looks for the lease of a row knows where it can begin. Within one that is torn other rows may stand that are free.
CREATE TABLE IF NOT EXISTS pillarbox.outbox_lease (
    first_id     bigint      PRIMARY KEY,
    last_id      bigint      NOT NULL,
    fence        bigint      NOT NULL,
    owner_token  uuid        NOT NULL,
    locked_until timestamptz NOT NULL,
    is_torn      boolean     NOT NULL DEFAULT false,
    CHECK (last_id - first_id BETWEEN 0 AND 2047)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX IF NOT EXISTS outbox_lease_fence ON pillarbox.outbox_lease (fence);

-- The hot table as if each of its rows had its lease in itself: for those who only read.
CREATE OR REPLACE VIEW pillarbox.outbox_live AS
SELECT
    live.id, live.message_id, coalesce(live.owner_token, held.owner_token) AS owner_token,
    CASE WHEN held.fence IS NULL THEN live.fence ELSE held.fence END AS fence,
    coalesce(live.locked_until, held.locked_until) AS locked_until,
    CASE WHEN held.fence IS NULL THEN live.attempts ELSE least(live.attempts, 2147483646) + 1 END AS attempts,
    live.lost_lease_count, live.created_at, live.due_at, live.expires_at, live.occurred_at, live.priority, live.topic,
    live.message_type, live.aggregate_type, live.aggregate_id, live.tenant_id, live.message_key, live.key_hash,
    live.correlation_id, live.causation_id, live.content_type, live.headers, live.last_error, live.payload
FROM pillarbox.outbox AS live
LEFT JOIN (
    SELECT covered.id, lease.owner_token, lease.fence, lease.locked_until
    FROM pillarbox.outbox_lease AS lease
    JOIN pillarbox.outbox AS covered ON covered.id BETWEEN lease.first_id AND lease.last_id
    WHERE covered.owner_token IS NULL AND covered.fence = 0 AND covered.message_key IS NULL
) AS held ON held.id = live.id;

CREATE TABLE IF NOT EXISTS pillarbox.outbox_shelf (
    id               bigint      NOT NULL DEFAULT nextval('pillarbox.outbox_id') PRIMARY KEY,
    message_id       uuid        NOT NULL,
    state            text        NOT NULL,
    is_receipt       boolean     NOT NULL DEFAULT false,
    created_at       timestamptz NOT NULL,
    due_at           timestamptz,
    expires_at       timestamptz,
    wake_at          timestamptz,
    settled_at       timestamptz,
    occurred_at      timestamptz,
    settled_by       uuid,
    attempts         integer     NOT NULL DEFAULT 0,
    lost_lease_count integer     NOT NULL DEFAULT 0,
    priority         smallint    NOT NULL DEFAULT 0,
    topic            text        NOT NULL,
    message_type     text,
    aggregate_type   text,
    aggregate_id     text,
    tenant_id        text,
    message_key      text        COLLATE "C",
    key_hash         bigint,
    correlation_id   text,
    causation_id     text,
    content_type     text,
    headers          jsonb,
    last_error       text,
    payload          bytea       NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

-- Not unique: a row that somebody inserted by hand under an id that is done already must not be stuck for ever.
CREATE INDEX IF NOT EXISTS outbox_shelf_message_id ON pillarbox.outbox_shelf (message_id);
CREATE UNIQUE INDEX IF NOT EXISTS outbox_shelf_waiting ON pillarbox.outbox_shelf (message_id) WHERE state = 'pending';
CREATE INDEX IF NOT EXISTS outbox_shelf_wake ON pillarbox.outbox_shelf (wake_at, id) WHERE state = 'pending';
CREATE INDEX IF NOT EXISTS outbox_shelf_dead ON pillarbox.outbox_shelf (id) WHERE state = 'dead';
CREATE INDEX IF NOT EXISTS outbox_shelf_done ON pillarbox.outbox_shelf (settled_at, id) WHERE state = 'done';
-- What may stand in the way of later messages of its key, or of a sequence: rows that were given back have `settled_by`.
CREATE INDEX IF NOT EXISTS outbox_shelf_lane ON pillarbox.outbox_shelf (message_key, id)
    WHERE message_key IS NOT NULL AND state <> 'done';
CREATE INDEX IF NOT EXISTS outbox_shelf_back ON pillarbox.outbox_shelf (id) WHERE state = 'pending' AND settled_by IS NOT NULL;
