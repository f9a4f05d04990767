-- Routes that an operator paused: one row for each, deployed when the first one is. Few rows, all read at once.
CREATE TABLE IF NOT EXISTS `pillarbox_outbox_pause` (
    `route` VARCHAR(700) NOT NULL,
    `paused_at` DATETIME(6) NOT NULL,
    `reason` VARCHAR(255) NULL,
    `paused_by` VARCHAR(255) NULL,
    PRIMARY KEY (`route`)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4
    /*M!100600 COLLATE utf8mb4_nopad_bin */ /*!80017 COLLATE utf8mb4_0900_bin */;
