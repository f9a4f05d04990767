-- The ledger of an inbox, beside the queue's two tables: one row for each (`source`, `source_id`) that came in.
-- Names are bytes, so that nothing but the bytes counts, trailing spaces included. `fence` tells which registration took the
-- row. No index for mismatches: it would cost every registration, and only an operator asks for them.
CREATE TABLE IF NOT EXISTS `pillarbox_inbox_ledger` (
    `source` VARBINARY(1020) NOT NULL,
    `source_id` VARBINARY(1020) NOT NULL,
    `message_id` BINARY(16) NOT NULL,
    `state` ENUM ('seen', 'processing', 'done', 'dead') NOT NULL,
    `is_queued` BOOLEAN NOT NULL DEFAULT FALSE,
    `first_seen_at` DATETIME(6) NOT NULL,
    `last_seen_at` DATETIME(6) NOT NULL,
    `done_at` DATETIME(6) NULL,
    `hash_algorithm` VARBINARY(32) NULL,
    `hash` VARBINARY(1024) NULL,
    `mismatch_count` INT NOT NULL DEFAULT 0,
    `owner_token` BINARY(16) NULL,
    `fence` BIGINT NOT NULL DEFAULT 0,
    `locked_until` DATETIME(6) NULL,
    `last_error` TEXT NULL,
    PRIMARY KEY (`source`, `source_id`),
    KEY `old` (`state`, `last_seen_at`)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4
    /*M!100600 COLLATE utf8mb4_nopad_bin */ /*!80017 COLLATE utf8mb4_0900_bin */;
