-- Who serves a queue now: one row for each instance, deployed when the first one registers.
-- Few rows, all read at once: no index but the key.
CREATE TABLE IF NOT EXISTS `pillarbox_outbox_instance` (
    `id` BINARY(16) NOT NULL,
    `service` VARCHAR(255) NOT NULL,
    `host` VARCHAR(255) NOT NULL,
    `pid` BIGINT NOT NULL,
    `version` VARCHAR(255) NULL,
    `metadata` TEXT NULL,
    `started_at` DATETIME(6) NOT NULL,
    `last_seen_at` DATETIME(6) NOT NULL,
    PRIMARY KEY (`id`)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4
    /*M!100600 COLLATE utf8mb4_nopad_bin */ /*!80017 COLLATE utf8mb4_0900_bin */;
