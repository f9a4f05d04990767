-- Takes the row for a consumer: done at once, or under a lease. A row that is done, queued or under somebody else's lease is
-- left as it is but for the time it was last seen and its hash. The fence is drawn for this call and is assigned first, from
-- the columns as they were; those after it ask whether the row has it. inbox_find.sql tells the rest.
INSERT INTO `pillarbox_inbox_ledger` (
    `source`, `source_id`, `message_id`, `state`, `done_at`, `hash_algorithm`, `hash`, `fence`, `owner_token`, `locked_until`,
    `first_seen_at`, `last_seen_at`)
VALUES (
    ?, ?, ? /*guard*/, ?, IF(? = 'done', UTC_TIMESTAMP(6), NULL), ?, ?, ?, ?,
    TIMESTAMPADD(MICROSECOND, ?, UTC_TIMESTAMP(6)), UTC_TIMESTAMP(6), UTC_TIMESTAMP(6))
ON DUPLICATE KEY UPDATE
    `fence` = IF(`state` <> 'done' AND NOT `is_queued`
        AND (`locked_until` IS NULL OR `locked_until` <= UTC_TIMESTAMP(6) OR (`owner_token` = ? AND `fence` = ?)),
        VALUES(`fence`), `fence`),
    `state` = IF(`fence` = VALUES(`fence`), VALUES(`state`), `state`),
    `done_at` = IF(`fence` = VALUES(`fence`), VALUES(`done_at`), `done_at`),
    `owner_token` = IF(`fence` = VALUES(`fence`), VALUES(`owner_token`), `owner_token`),
    `locked_until` = IF(`fence` = VALUES(`fence`), VALUES(`locked_until`), `locked_until`),
    `mismatch_count` = LEAST(`mismatch_count`
        + COALESCE(`hash_algorithm` = VALUES(`hash_algorithm`) AND `hash` <> VALUES(`hash`), 0), 2147483647),
    `hash` = IF(`hash_algorithm` IS NULL, VALUES(`hash`), `hash`),
    `hash_algorithm` = COALESCE(`hash_algorithm`, VALUES(`hash_algorithm`)),
    `last_seen_at` = GREATEST(VALUES(`last_seen_at`), `last_seen_at` + INTERVAL 1 MICROSECOND)
