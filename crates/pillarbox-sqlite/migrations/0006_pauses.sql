-- Routes that an operator paused: one row for each, deployed when the first one is. Few rows, all read at once.
CREATE TABLE IF NOT EXISTS pillarbox_outbox_pause (
    route     TEXT    NOT NULL PRIMARY KEY,
    paused_at INTEGER NOT NULL,
    reason    TEXT,
    paused_by TEXT
) STRICT, WITHOUT ROWID;
