-- The ledger of an inbox, beside the queue's two tables: one row for each (source, source_id) that came in.
-- Names are compared byte for byte, whatever the collation of the database. `fence` tells which registration took the row.
CREATE TABLE IF NOT EXISTS pillarbox.inbox_ledger (
    message_id     uuid        NOT NULL,
    fence          bigint      NOT NULL DEFAULT 0,
    first_seen_at  timestamptz NOT NULL,
    last_seen_at   timestamptz NOT NULL,
    done_at        timestamptz,
    locked_until   timestamptz,
    owner_token    uuid,
    mismatch_count integer     NOT NULL DEFAULT 0,
    is_queued      boolean     NOT NULL DEFAULT false,
    state          text        NOT NULL,
    source         text        COLLATE "C" NOT NULL,
    source_id      text        COLLATE "C" NOT NULL,
    hash_algorithm text,
    hash           bytea,
    last_error     text,
    PRIMARY KEY (source, source_id)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX IF NOT EXISTS inbox_ledger_old ON pillarbox.inbox_ledger (last_seen_at) WHERE state = 'done' OR is_queued;
CREATE INDEX IF NOT EXISTS inbox_ledger_mismatch ON pillarbox.inbox_ledger (source, source_id) WHERE mismatch_count > 0;
