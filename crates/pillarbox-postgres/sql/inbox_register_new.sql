-- Makes a message done that nobody has seen yet. One that is known is left to inbox_register.sql, which costs more.
INSERT INTO pillarbox.inbox_ledger (
    source, source_id, message_id, state, first_seen_at, last_seen_at, done_at, hash_algorithm, hash)
VALUES (
    $1, $2, $3, CASE WHEN $6 = 'pillarbox.inbox' THEN 'done' END, statement_timestamp(), statement_timestamp(),
    statement_timestamp(), $4, $5)
ON CONFLICT (source, source_id) DO NOTHING
