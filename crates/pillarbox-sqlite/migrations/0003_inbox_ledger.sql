-- The ledger of an inbox, beside the queue's two tables: one row for each (source, source_id) that came in.
-- Names are compared byte for byte: STRICT text has the collation BINARY, which knows no case and no padding.
-- WITHOUT ROWID: the names are the table, so a look-up reads one tree. `fence` tells which registration took the row.
CREATE TABLE IF NOT EXISTS pillarbox_inbox_ledger (
    source         TEXT    NOT NULL,
    source_id      TEXT    NOT NULL,
    message_id     BLOB    NOT NULL,
    state          TEXT    NOT NULL,
    is_queued      INTEGER NOT NULL DEFAULT 0,
    first_seen_at  INTEGER NOT NULL,
    last_seen_at   INTEGER NOT NULL,
    done_at        INTEGER,
    hash_algorithm TEXT,
    hash           BLOB,
    mismatch_count INTEGER NOT NULL DEFAULT 0,
    owner_token    BLOB,
    fence          INTEGER NOT NULL DEFAULT 0,
    locked_until   INTEGER,
    last_error     TEXT,
    PRIMARY KEY (source, source_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX IF NOT EXISTS pillarbox_inbox_ledger_old ON pillarbox_inbox_ledger (last_seen_at)
 WHERE state = 'done' OR is_queued;
CREATE INDEX IF NOT EXISTS pillarbox_inbox_ledger_mismatch ON pillarbox_inbox_ledger (source, source_id)
 WHERE mismatch_count > 0;
