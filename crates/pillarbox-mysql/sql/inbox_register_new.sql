-- Makes a message done that nobody has seen yet. One that is known is touched, so that the count of changes tells it from a new
-- one, and left to inbox_register.sql, which costs more.
INSERT INTO `pillarbox_inbox_ledger` (
    `source`, `source_id`, `message_id`, `state`, `hash_algorithm`, `hash`, `done_at`, `first_seen_at`, `last_seen_at`)
VALUES (?, ?, ? /*guard*/, 'done', ?, ?, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6), UTC_TIMESTAMP(6))
ON DUPLICATE KEY UPDATE `last_seen_at` = `last_seen_at` + INTERVAL 1 MICROSECOND
