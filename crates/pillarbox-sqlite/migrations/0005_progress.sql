-- How far receptors and perspectives have come, deployed with the first work coordinator. Rows are found by their keys; old
-- results of receptors by their age.
CREATE TABLE IF NOT EXISTS pillarbox_outbox_receptor (
    message_id BLOB    NOT NULL CHECK (length(message_id) = 16),
    receptor   TEXT    NOT NULL,
    state      TEXT    NOT NULL,
    error      TEXT,
    attempts   INTEGER NOT NULL,
    changed_at INTEGER NOT NULL,
    PRIMARY KEY (message_id, receptor)
) STRICT, WITHOUT ROWID;

CREATE INDEX IF NOT EXISTS pillarbox_outbox_receptor_old ON pillarbox_outbox_receptor (changed_at);

CREATE TABLE IF NOT EXISTS pillarbox_outbox_checkpoint (
    stream      TEXT    NOT NULL,
    perspective TEXT    NOT NULL,
    position    INTEGER NOT NULL,
    message_id  BLOB,
    state       TEXT    NOT NULL,
    error       TEXT,
    changed_at  INTEGER NOT NULL,
    PRIMARY KEY (stream, perspective)
) STRICT, WITHOUT ROWID;
