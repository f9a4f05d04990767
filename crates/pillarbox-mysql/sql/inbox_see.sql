-- Deliveries: writes the rows that are new, and moves on the time that others were last seen, by a microsecond at least, so
-- that a known row always counts as changed. Assignments run one after the other: each still reads the columns below it
-- as they were. The hash on record is kept; one of another algorithm is not comparable. The program repeats the row.
INSERT INTO `pillarbox_inbox_ledger` (
    `source`, `source_id`, `message_id`, `state`, `is_queued`, `hash_algorithm`, `hash`, `first_seen_at`, `last_seen_at`)
VALUES (?, ?, ?, ?, ?, ?, ?, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6))
ON DUPLICATE KEY UPDATE
    `mismatch_count` = LEAST(`mismatch_count`
        + COALESCE(`hash_algorithm` = VALUES(`hash_algorithm`) AND `hash` <> VALUES(`hash`), 0), 2147483647),
    `hash` = IF(`hash_algorithm` IS NULL, VALUES(`hash`), `hash`),
    `hash_algorithm` = COALESCE(`hash_algorithm`, VALUES(`hash_algorithm`)),
    `last_seen_at` = GREATEST(VALUES(`last_seen_at`), `last_seen_at` + INTERVAL 1 MICROSECOND)
