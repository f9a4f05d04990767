-- Routes that an operator paused: one row for each, deployed when the first one is. Few rows, all read at once.
CREATE TABLE IF NOT EXISTS pillarbox.outbox_pause (
    route     text        COLLATE "C" PRIMARY KEY,
    paused_at timestamptz NOT NULL,
    reason    text,
    paused_by text
);
