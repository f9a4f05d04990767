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
