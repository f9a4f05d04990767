-- Two tables of messages: `outbox` holds what can be claimed or is leased, `outbox_shelf` what nobody may claim now (waiting,
-- done, dead). Claims walk the primary key of the first and meet nothing else; its lease, due and key columns carry no index.
-- Text is compared byte by byte, trailing spaces included; MariaDB and MySQL have different names for that collation.
-- Times are UTC in DATETIME(6), so that no session's time_zone matters.
CREATE TABLE IF NOT EXISTS `pillarbox_outbox` (
    `id` BIGINT NOT NULL AUTO_INCREMENT,
    `message_id` BINARY(16) NOT NULL DEFAULT (UNHEX(REPLACE(UUID(), '-', ''))),
    `topic` VARCHAR(255) NOT NULL,
    `payload` LONGBLOB NOT NULL,
    `created_at` DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    `due_at` DATETIME(6) NULL,
    `expires_at` DATETIME(6) NULL,
    `attempts` INT NOT NULL DEFAULT 0,
    `lost_lease_count` INT NOT NULL DEFAULT 0,
    `priority` SMALLINT NOT NULL DEFAULT 0,
    `owner_token` BINARY(16) NULL,
    `locked_until` DATETIME(6) NULL,
    `fence` BIGINT NOT NULL DEFAULT 0,
    `message_type` VARCHAR(255) NULL,
    `aggregate_type` VARCHAR(255) NULL,
    `aggregate_id` VARCHAR(255) NULL,
    `tenant_id` VARCHAR(255) NULL,
    `message_key` VARCHAR(255) NULL,
    `key_hash` BIGINT NULL,
    `correlation_id` VARCHAR(255) NULL,
    `causation_id` VARCHAR(255) NULL,
    `content_type` VARCHAR(255) NULL,
    `headers` LONGTEXT NULL,
    `occurred_at` DATETIME(6) NULL,
    `last_error` TEXT NULL,
    PRIMARY KEY (`id`),
    UNIQUE KEY `message_id` (`message_id`)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4
    /*M!100600 COLLATE utf8mb4_nopad_bin */ /*!80017 COLLATE utf8mb4_0900_bin */;

-- One index serves both ways in: waiting rows by the time they wake, done rows by the time they were settled.
-- Whatever is not waiting has no `wake_at`. A waiting row with `settled_by` was given back to be tried again: it stands in the
-- way of later ones of its key.
CREATE TABLE IF NOT EXISTS `pillarbox_outbox_shelf` (
    `id` BIGINT NOT NULL,
    `message_id` BINARY(16) NOT NULL,
    `topic` VARCHAR(255) NOT NULL,
    `payload` LONGBLOB NOT NULL,
    `created_at` DATETIME(6) NOT NULL,
    `due_at` DATETIME(6) NULL,
    `expires_at` DATETIME(6) NULL,
    `attempts` INT NOT NULL DEFAULT 0,
    `lost_lease_count` INT NOT NULL DEFAULT 0,
    `priority` SMALLINT NOT NULL DEFAULT 0,
    `state` ENUM ('pending', 'done', 'dead') NOT NULL,
    `wake_at` DATETIME(6) NULL,
    `settled_at` DATETIME(6) NULL,
    `settled_by` BINARY(16) NULL,
    `is_receipt` BOOLEAN NOT NULL DEFAULT FALSE,
    `message_type` VARCHAR(255) NULL,
    `aggregate_type` VARCHAR(255) NULL,
    `aggregate_id` VARCHAR(255) NULL,
    `tenant_id` VARCHAR(255) NULL,
    `message_key` VARCHAR(255) NULL,
    `key_hash` BIGINT NULL,
    `correlation_id` VARCHAR(255) NULL,
    `causation_id` VARCHAR(255) NULL,
    `content_type` VARCHAR(255) NULL,
    `headers` LONGTEXT NULL,
    `occurred_at` DATETIME(6) NULL,
    `last_error` TEXT NULL,
    PRIMARY KEY (`id`),
    UNIQUE KEY `message_id` (`message_id`),
    KEY `state` (`state`, `wake_at`, `settled_at`)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4
    /*M!100600 COLLATE utf8mb4_nopad_bin */ /*!80017 COLLATE utf8mb4_0900_bin */;

-- By this a claim sees what stands in the way of a message with a key: where every such message is that is in the outbox (live)
-- or on the shelf (waiting, dead). There are no indexes of some rows only, and messages without a key shall not pay for one.
-- A row changes in the transaction that moves its message, by whoever has locked that. One without a message does no harm;
-- a message with a key and without a row here came by a plain INSERT, and is not claimed before a claim has put it here.
-- A row that `is_clear` has been live and free since a claim looked through all later ones of its key: none of them is held.
CREATE TABLE IF NOT EXISTS `pillarbox_outbox_lane` (
    `id` BIGINT NOT NULL,
    `message_key` VARCHAR(255) NOT NULL,
    `place` ENUM ('live', 'waiting', 'dead') NOT NULL,
    `is_clear` BOOLEAN NOT NULL DEFAULT FALSE,
    PRIMARY KEY (`id`),
    KEY `lane` (`place`, `message_key`, `id`)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4
    /*M!100600 COLLATE utf8mb4_nopad_bin */ /*!80017 COLLATE utf8mb4_0900_bin */;

-- MariaDB: no row above this number has been locked by a claim for its key. A claim raises it before it looks at other rows; a
-- sequence is raised at once, for everybody to see, and no rollback lowers it. MySQL has no sequences.
/*M!100600 CREATE SEQUENCE IF NOT EXISTS `pillarbox_outbox_claimed` MINVALUE 1 NOCACHE */ /*!80000 DO 0 */;
