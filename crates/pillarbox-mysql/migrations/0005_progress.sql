-- How far receptors and perspectives have come, deployed with the first work coordinator. Rows are found by their keys; old
-- results of receptors by their age.
-- The fence of the call that changed a row last tells that call which of its rows it has changed.
CREATE TABLE IF NOT EXISTS `pillarbox_outbox_receptor` (
    `message_id` BINARY(16) NOT NULL,
    `receptor` VARCHAR(255) NOT NULL,
    `state` VARCHAR(10) NOT NULL,
    `error` TEXT NULL,
    `attempts` INT NOT NULL,
    `changed_at` DATETIME(6) NOT NULL,
    `fence` BIGINT NOT NULL,
    PRIMARY KEY (`message_id`, `receptor`),
    KEY `changed_at` (`changed_at`)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4
    /*M!100600 COLLATE utf8mb4_nopad_bin */ /*!80017 COLLATE utf8mb4_0900_bin */;

CREATE TABLE IF NOT EXISTS `pillarbox_outbox_checkpoint` (
    `stream` VARCHAR(255) NOT NULL,
    `perspective` VARCHAR(255) NOT NULL,
    `position` BIGINT NOT NULL,
    `message_id` BINARY(16) NULL,
    `state` VARCHAR(10) NOT NULL,
    `error` TEXT NULL,
    `changed_at` DATETIME(6) NOT NULL,
    `fence` BIGINT NOT NULL,
    PRIMARY KEY (`stream`, `perspective`)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4
    /*M!100600 COLLATE utf8mb4_nopad_bin */ /*!80017 COLLATE utf8mb4_0900_bin */;
