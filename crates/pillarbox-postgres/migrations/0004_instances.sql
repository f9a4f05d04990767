-- Who serves a queue now: one row for each instance, deployed when the first one registers.
-- Few rows, all read at once: no index but the key, so that a heartbeat changes nothing but its page, which has room for it.
CREATE TABLE IF NOT EXISTS pillarbox.outbox_instance (
    id           uuid        PRIMARY KEY,
    started_at   timestamptz NOT NULL,
    last_seen_at timestamptz NOT NULL,
    pid          bigint      NOT NULL,
    service      text        NOT NULL,
    host         text        NOT NULL,
    version      text,
    metadata     text
) WITH (fillfactor = 50);
