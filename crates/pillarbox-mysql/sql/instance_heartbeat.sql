-- An instance says that it is there: one statement registers it, or moves on when it was last seen. When it started stays.
INSERT INTO `pillarbox_outbox_instance` (`id`, `service`, `host`, `pid`, `version`, `metadata`, `started_at`, `last_seen_at`)
VALUES (?, ?, ?, ?, ?, ?, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6))
ON DUPLICATE KEY UPDATE
    `service` = VALUES(`service`), `host` = VALUES(`host`), `pid` = VALUES(`pid`), `version` = VALUES(`version`),
    `metadata` = VALUES(`metadata`), `last_seen_at` = VALUES(`last_seen_at`)
