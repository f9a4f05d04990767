-- Who serves a queue now: one row for each instance, deployed when the first one registers.
-- Few rows, all read at once: no index but the key. What an instance says of itself is text, also the JSON of its metadata.
CREATE TABLE IF NOT EXISTS pillarbox_outbox_instance (
    id           BLOB    NOT NULL PRIMARY KEY CHECK (length(id) = 16),
    service      TEXT    NOT NULL,
    host         TEXT    NOT NULL,
    pid          INTEGER NOT NULL,
    version      TEXT,
    metadata     TEXT,
    started_at   INTEGER NOT NULL,
    last_seen_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
