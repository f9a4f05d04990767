-- How far receptors and perspectives have come, deployed with the first work coordinator. Rows are found by their keys; old
-- results of receptors by their age.
CREATE TABLE IF NOT EXISTS pillarbox.outbox_receptor (
    message_id uuid             NOT NULL,
    changed_at timestamptz      NOT NULL,
    attempts   integer          NOT NULL,
    receptor   text COLLATE "C" NOT NULL,
    state      text             NOT NULL,
    error      text,
    PRIMARY KEY (message_id, receptor)
) WITH (fillfactor = 80);

CREATE INDEX IF NOT EXISTS outbox_receptor_old ON pillarbox.outbox_receptor (changed_at);

CREATE TABLE IF NOT EXISTS pillarbox.outbox_checkpoint (
    position    bigint           NOT NULL,
    changed_at  timestamptz      NOT NULL,
    message_id  uuid,
    stream      text COLLATE "C" NOT NULL,
    perspective text COLLATE "C" NOT NULL,
    state       text             NOT NULL,
    error       text,
    PRIMARY KEY (stream, perspective)
) WITH (fillfactor = 80);
