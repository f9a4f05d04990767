-- Routines for other languages (enqueue, claim, ack, abandon, fail, reap) and the inner ones (`…_rows`, `…_one`) they share
-- with the library. Those that change state begin READ COMMITTED transactions of their own and refuse to run inside one of
-- the caller's; enqueue is the other way round. They run with the caller's rights.
-- The modes below are stored with each routine, so that no caller's sql_mode matters.
SET SESSION sql_mode = 'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION';

-- Fails unless a transaction is open: its characteristics can be changed only while none is.
-- A deadlock ends the transaction without a word, and what follows would be committed alone (H9).
DROP PROCEDURE IF EXISTS `pillarbox_outbox_require_tx`;
DELIMITER $$
CREATE PROCEDURE `pillarbox_outbox_require_tx`()
    SQL SECURITY INVOKER
BEGIN
    DECLARE v_outside BOOLEAN DEFAULT TRUE;
    BEGIN
        DECLARE CONTINUE HANDLER FOR 1568 SET v_outside = FALSE;
        SET TRANSACTION READ WRITE;
    END;
    IF v_outside THEN
        SIGNAL SQLSTATE '25P01' SET MYSQL_ERRNO = 30001, MESSAGE_TEXT = 'no transaction is open on this connection';
    END IF;
END$$
DELIMITER ;

-- Stores one message in the caller's transaction. The insert comes first: only then can a settlement no longer slip by
-- between the two tables. The shelf is read without locks, which would hold up settlements until the caller commits.
-- Every insert draws a fence of its own; a row that shows another one was there before.
DROP PROCEDURE IF EXISTS `pillarbox_outbox_enqueue_one`;
DELIMITER $$
CREATE PROCEDURE `pillarbox_outbox_enqueue_one`(
    p_message_id BINARY(16), p_topic VARCHAR(255) CHARACTER SET utf8mb4, p_payload LONGBLOB,
    p_message_type VARCHAR(255) CHARACTER SET utf8mb4, p_aggregate_type VARCHAR(255) CHARACTER SET utf8mb4,
    p_aggregate_id VARCHAR(255) CHARACTER SET utf8mb4, p_tenant_id VARCHAR(255) CHARACTER SET utf8mb4,
    p_message_key VARCHAR(255) CHARACTER SET utf8mb4, p_correlation_id VARCHAR(255) CHARACTER SET utf8mb4,
    p_causation_id VARCHAR(255) CHARACTER SET utf8mb4, p_content_type VARCHAR(255) CHARACTER SET utf8mb4,
    p_headers LONGTEXT CHARACTER SET utf8mb4, p_occurred_at BIGINT, p_due_at BIGINT, p_due_after BIGINT,
    p_expires_at BIGINT, p_expires_after BIGINT, p_priority SMALLINT,
    p_owner BINARY(16), p_fence BIGINT, p_lease BIGINT)
    SQL SECURITY INVOKER
BEGIN
    DECLARE v_now DATETIME(6) DEFAULT UTC_TIMESTAMP(6);
    DECLARE v_due DATETIME(6) DEFAULT COALESCE(
        v_now + INTERVAL p_due_after MICROSECOND, TIMESTAMPADD(MICROSECOND, p_due_at, '1970-01-01'));
    DECLARE v_expires DATETIME(6) DEFAULT COALESCE(
        v_now + INTERVAL p_expires_after MICROSECOND, TIMESTAMPADD(MICROSECOND, p_expires_at, '1970-01-01'));
    DECLARE v_leased BOOLEAN DEFAULT p_owner IS NOT NULL AND COALESCE(v_due <= v_now, TRUE)
        AND COALESCE(v_expires > v_now, TRUE);
    DECLARE v_id BIGINT;
    DECLARE v_fence BIGINT;
    DECLARE v_known BOOLEAN;
    DECLARE v_never DATETIME(6) DEFAULT '9999-12-31';
    -- MariaDB has a variable for it, which costs nothing to ask.
    /*M!100600 IF @@in_transaction = 0 THEN
        SIGNAL SQLSTATE '25P01' SET MYSQL_ERRNO = 30001, MESSAGE_TEXT = 'no transaction is open on this connection';
    END IF; */
    /*!80000 CALL `pillarbox_outbox_require_tx`(); */
    INSERT INTO `pillarbox_outbox` (`message_id`, `topic`, `payload`, `created_at`, `due_at`, `expires_at`, `attempts`,
        `priority`, `owner_token`, `locked_until`, `fence`, `message_type`, `aggregate_type`, `aggregate_id`, `tenant_id`,
        `message_key`, `correlation_id`, `causation_id`, `content_type`, `headers`, `occurred_at`)
    VALUES (p_message_id, p_topic, p_payload, v_now, v_due, v_expires, v_leased,
        p_priority, IF(v_leased, p_owner, NULL), IF(v_leased, v_now + INTERVAL p_lease MICROSECOND, NULL), p_fence,
        p_message_type, p_aggregate_type, p_aggregate_id, p_tenant_id, p_message_key, p_correlation_id, p_causation_id,
        p_content_type, p_headers, TIMESTAMPADD(MICROSECOND, p_occurred_at, '1970-01-01'))
    ON DUPLICATE KEY UPDATE `id` = `id`;
    -- A statement of its own: as a condition of IF the look at the shelf would lock under REPEATABLE READ.
    SELECT `id`, `fence`, EXISTS (SELECT 1 FROM `pillarbox_outbox_shelf` WHERE `message_id` = p_message_id)
    INTO v_id, v_fence, v_known FROM `pillarbox_outbox` WHERE `message_id` = p_message_id;
    IF v_fence <=> p_fence THEN
        IF v_known THEN
            DELETE FROM `pillarbox_outbox` WHERE `id` = v_id;
        ELSE
            IF v_due > v_now THEN
                INSERT INTO `pillarbox_outbox_shelf`
                    (`id`, `message_id`, `topic`, `payload`, `created_at`, `due_at`, `expires_at`, `attempts`,
                    `lost_lease_count`, `priority`, `message_type`, `aggregate_type`, `aggregate_id`, `tenant_id`,
                    `message_key`, `correlation_id`, `causation_id`, `content_type`, `headers`, `occurred_at`,
                    `last_error`, `state`, `wake_at`)
                SELECT `id`, `message_id`, `topic`, `payload`, `created_at`, `due_at`, `expires_at`, `attempts`,
                    `lost_lease_count`, `priority`, `message_type`, `aggregate_type`, `aggregate_id`, `tenant_id`,
                    `message_key`, `correlation_id`, `causation_id`, `content_type`, `headers`, `occurred_at`,
                    `last_error`, 'pending', LEAST(v_due, COALESCE(v_expires, v_never))
                FROM `pillarbox_outbox` WHERE `id` = v_id;
                DELETE FROM `pillarbox_outbox` WHERE `id` = v_id;
            END IF;
            SELECT v_id AS `id`, p_message_id AS `message_id`, v_leased AS `leased`;
        END IF;
    END IF;
END$$
DELIMITER ;

-- Leases up to `p_limit` messages. Rows that waited come from the shelf; the others are taken in the order of the primary
-- key, without a sort and without waiting for anybody. The limit stands in a derived table that is materialised once, joined
-- first, so that never more rows change. Our rows are found again by the fence, in the range that was just walked.
DROP PROCEDURE IF EXISTS `pillarbox_outbox_claim_rows`;
DELIMITER $$
CREATE PROCEDURE `pillarbox_outbox_claim_rows`(
    p_owner BINARY(16), p_fence BIGINT, p_lease BIGINT, p_limit INT, p_floor BIGINT, p_lost_leases_max INT)
    SQL SECURITY INVOKER
BEGIN
    DECLARE v_now DATETIME(6) DEFAULT UTC_TIMESTAMP(6);
    DECLARE v_until DATETIME(6) DEFAULT v_now + INTERVAL p_lease MICROSECOND;
    DECLARE v_ids LONGTEXT CHARACTER SET utf8mb4;
    DECLARE v_due BOOLEAN;
    DECLARE v_waiting INT DEFAULT 0;
    DECLARE v_room INT DEFAULT p_limit;
    DECLARE v_taken INT DEFAULT 0;
    SELECT EXISTS (SELECT 1 FROM `pillarbox_outbox_shelf` WHERE `state` = 'pending' AND `wake_at` <= v_now) INTO v_due;
    IF v_due THEN
        SET SESSION group_concat_max_len = GREATEST(@@SESSION.group_concat_max_len, 1048576);
        SELECT JSON_ARRAYAGG(w.`id`), COUNT(*) INTO v_ids, v_waiting
        FROM (
            SELECT `id` FROM `pillarbox_outbox_shelf`
            WHERE `state` = 'pending' AND `wake_at` <= v_now AND `due_at` <= v_now
                AND (`expires_at` IS NULL OR `expires_at` > v_now)
            ORDER BY `wake_at`, `settled_at`, `id` LIMIT p_limit FOR UPDATE SKIP LOCKED
        ) AS w;
        SET v_room = p_limit - v_waiting;
    END IF;
    IF v_room > 0 THEN
        UPDATE (
            SELECT `id`, `attempts`, `lost_lease_count`, `owner_token` IS NOT NULL AS `was_leased`
            FROM `pillarbox_outbox` FORCE INDEX (PRIMARY)
            WHERE `id` > p_floor
                AND (`owner_token` IS NULL OR (`locked_until` <= v_now AND `lost_lease_count` < p_lost_leases_max))
                AND (`due_at` IS NULL OR `due_at` <= v_now) AND (`expires_at` IS NULL OR `expires_at` > v_now)
            ORDER BY `id` LIMIT v_room FOR UPDATE SKIP LOCKED
        ) AS c
        STRAIGHT_JOIN `pillarbox_outbox` AS l FORCE INDEX (PRIMARY) ON l.`id` = c.`id`
        SET l.`owner_token` = p_owner, l.`fence` = p_fence, l.`locked_until` = v_until,
            l.`attempts` = LEAST(c.`attempts`, 2147483646) + 1,
            l.`lost_lease_count` = LEAST(c.`lost_lease_count`, 2147483646) + c.`was_leased`;
        SET v_taken = ROW_COUNT();
        IF v_taken > 0 THEN
            SELECT l.`id`, l.`message_id`, l.`topic`, l.`payload`, l.`created_at`, l.`due_at`, l.`expires_at`,
            l.`attempts`, l.`lost_lease_count`, l.`priority`, l.`message_type`, l.`aggregate_type`,
            l.`aggregate_id`, l.`tenant_id`, l.`message_key`, l.`correlation_id`, l.`causation_id`,
            l.`content_type`, l.`headers`, l.`occurred_at`, l.`last_error`, l.`owner_token`, l.`locked_until`,
            l.`fence`, 0 AS `waited`
            FROM `pillarbox_outbox` AS l FORCE INDEX (PRIMARY)
            WHERE l.`id` > p_floor AND l.`fence` = p_fence AND l.`owner_token` = p_owner
            ORDER BY l.`id` LIMIT v_taken;
        END IF;
    END IF;
    IF v_waiting > 0 THEN
        INSERT INTO `pillarbox_outbox`
            (`id`, `message_id`, `topic`, `payload`, `created_at`, `due_at`, `expires_at`, `attempts`,
            `lost_lease_count`, `priority`, `message_type`, `aggregate_type`, `aggregate_id`, `tenant_id`,
            `message_key`, `correlation_id`, `causation_id`, `content_type`, `headers`, `occurred_at`, `last_error`,
            `owner_token`, `locked_until`, `fence`)
        SELECT s.`id`, s.`message_id`, s.`topic`, s.`payload`, s.`created_at`, s.`due_at`, s.`expires_at`,
            LEAST(s.`attempts`, 2147483646) + 1, s.`lost_lease_count`, s.`priority`, s.`message_type`,
            s.`aggregate_type`, s.`aggregate_id`, s.`tenant_id`, s.`message_key`, s.`correlation_id`,
            s.`causation_id`, s.`content_type`, s.`headers`, s.`occurred_at`, s.`last_error`, p_owner, v_until,
            p_fence
        FROM JSON_TABLE(v_ids, '$[*]' COLUMNS (`id` BIGINT PATH '$')) AS j
        STRAIGHT_JOIN `pillarbox_outbox_shelf` AS s FORCE INDEX (PRIMARY) ON s.`id` = j.`id`
        ON DUPLICATE KEY UPDATE `pillarbox_outbox`.`id` = `pillarbox_outbox`.`id`;
        DELETE s FROM JSON_TABLE(v_ids, '$[*]' COLUMNS (`id` BIGINT PATH '$')) AS j
        STRAIGHT_JOIN `pillarbox_outbox_shelf` AS s FORCE INDEX (PRIMARY) ON s.`id` = j.`id`;
        SELECT l.`id`, l.`message_id`, l.`topic`, l.`payload`, l.`created_at`, l.`due_at`, l.`expires_at`,
            l.`attempts`, l.`lost_lease_count`, l.`priority`, l.`message_type`, l.`aggregate_type`,
            l.`aggregate_id`, l.`tenant_id`, l.`message_key`, l.`correlation_id`, l.`causation_id`,
            l.`content_type`, l.`headers`, l.`occurred_at`, l.`last_error`, l.`owner_token`, l.`locked_until`,
            l.`fence`, 1 AS `waited`
        FROM JSON_TABLE(v_ids, '$[*]' COLUMNS (`id` BIGINT PATH '$')) AS j
        STRAIGHT_JOIN `pillarbox_outbox` AS l FORCE INDEX (PRIMARY) ON l.`id` = j.`id`
        WHERE l.`fence` = p_fence AND l.`owner_token` = p_owner;
    END IF;
END$$
DELIMITER ;

-- Applies verdicts, a JSON array of [id, fence, verdict, delay in microseconds, reason], sorted by id. First all rows that are
-- still under the named claim are locked and answered; then each moves once. A row whose message is on the shelf already
-- (stored twice under an old snapshot) just goes.
DROP PROCEDURE IF EXISTS `pillarbox_outbox_settle_rows`;
DELIMITER $$
CREATE PROCEDURE `pillarbox_outbox_settle_rows`(p_owner BINARY(16), p_verdicts LONGTEXT CHARACTER SET utf8mb4)
    SQL SECURITY INVOKER
BEGIN
    DECLARE v_now DATETIME(6) DEFAULT UTC_TIMESTAMP(6);
    DECLARE v_never DATETIME(6) DEFAULT '9999-12-31';
    SELECT l.`id` AS `applied`
    FROM JSON_TABLE(p_verdicts, '$[*]' COLUMNS (`id` BIGINT PATH '$[0]', `fence` BIGINT PATH '$[1]')) AS j
    STRAIGHT_JOIN `pillarbox_outbox` AS l FORCE INDEX (PRIMARY) ON l.`id` = j.`id`
    WHERE l.`owner_token` = p_owner AND l.`fence` = j.`fence`
    FOR UPDATE;
    INSERT INTO `pillarbox_outbox_shelf`
        (`id`, `message_id`, `topic`, `payload`, `created_at`, `due_at`, `expires_at`, `attempts`,
        `lost_lease_count`, `priority`, `message_type`, `aggregate_type`, `aggregate_id`, `tenant_id`,
        `message_key`, `correlation_id`, `causation_id`, `content_type`, `headers`, `occurred_at`, `last_error`,
        `state`, `wake_at`, `settled_at`, `settled_by`, `is_receipt`)
    SELECT
        l.`id`, l.`message_id`, l.`topic`, IF(j.`verdict` = 'receipt', '', l.`payload`), l.`created_at`,
        IF(j.`verdict` IN ('abandon', 'release'), v_now + INTERVAL j.`delay` MICROSECOND, l.`due_at`),
        l.`expires_at`, IF(j.`verdict` = 'release', GREATEST(l.`attempts` - 1, 0), l.`attempts`),
        l.`lost_lease_count`, l.`priority`, l.`message_type`,
        IF(j.`verdict` = 'receipt', NULL, l.`aggregate_type`), IF(j.`verdict` = 'receipt', NULL, l.`aggregate_id`),
        IF(j.`verdict` = 'receipt', NULL, l.`tenant_id`), IF(j.`verdict` = 'receipt', NULL, l.`message_key`),
        IF(j.`verdict` = 'receipt', NULL, l.`correlation_id`), IF(j.`verdict` = 'receipt', NULL, l.`causation_id`),
        IF(j.`verdict` = 'receipt', NULL, l.`content_type`), IF(j.`verdict` = 'receipt', NULL, l.`headers`),
        IF(j.`verdict` = 'receipt', NULL, l.`occurred_at`),
        IF(j.`verdict` = 'receipt', NULL, COALESCE(j.`reason`, l.`last_error`)),
        CASE WHEN j.`verdict` IN ('abandon', 'release') THEN 'pending' WHEN j.`verdict` = 'fail' THEN 'dead' ELSE 'done' END,
        IF(j.`verdict` IN ('abandon', 'release'), LEAST(v_now + INTERVAL j.`delay` MICROSECOND, COALESCE(l.`expires_at`, v_never)), NULL),
        IF(j.`verdict` IN ('abandon', 'release'), NULL, v_now),
        IF(j.`verdict` IN ('abandon', 'release'), NULL, p_owner), j.`verdict` = 'receipt'
    FROM JSON_TABLE(p_verdicts, '$[*]' COLUMNS (
        `id` BIGINT PATH '$[0]', `fence` BIGINT PATH '$[1]', `verdict` VARCHAR(8) CHARACTER SET utf8mb4 PATH '$[2]',
        `delay` BIGINT PATH '$[3]', `reason` TEXT CHARACTER SET utf8mb4 PATH '$[4]')) AS j
    STRAIGHT_JOIN `pillarbox_outbox` AS l FORCE INDEX (PRIMARY) ON l.`id` = j.`id`
    WHERE l.`owner_token` = p_owner AND l.`fence` = j.`fence`
        AND (j.`verdict` IN ('receipt', 'keep', 'fail') OR j.`delay` > 0)
    ON DUPLICATE KEY UPDATE `pillarbox_outbox_shelf`.`id` = `pillarbox_outbox_shelf`.`id`;
    DELETE l
    FROM JSON_TABLE(p_verdicts, '$[*]' COLUMNS (
        `id` BIGINT PATH '$[0]', `fence` BIGINT PATH '$[1]', `verdict` VARCHAR(8) CHARACTER SET utf8mb4 PATH '$[2]',
        `delay` BIGINT PATH '$[3]')) AS j
    STRAIGHT_JOIN `pillarbox_outbox` AS l FORCE INDEX (PRIMARY) ON l.`id` = j.`id`
    WHERE l.`owner_token` = p_owner AND l.`fence` = j.`fence`
        AND (j.`verdict` IN ('delete', 'receipt', 'keep', 'fail') OR j.`delay` > 0);
    UPDATE JSON_TABLE(p_verdicts, '$[*]' COLUMNS (
        `id` BIGINT PATH '$[0]', `fence` BIGINT PATH '$[1]', `verdict` VARCHAR(8) CHARACTER SET utf8mb4 PATH '$[2]',
        `delay` BIGINT PATH '$[3]', `reason` TEXT CHARACTER SET utf8mb4 PATH '$[4]')) AS j
    STRAIGHT_JOIN `pillarbox_outbox` AS l FORCE INDEX (PRIMARY) ON l.`id` = j.`id` AND l.`fence` = j.`fence`
    SET l.`attempts` = IF(j.`verdict` = 'release', GREATEST(l.`attempts` - 1, 0), l.`attempts`),
        l.`last_error` = COALESCE(j.`reason`, l.`last_error`),
        l.`due_at` = NULL, l.`locked_until` = NULL, l.`fence` = 0, l.`owner_token` = NULL
    WHERE l.`owner_token` = p_owner AND j.`verdict` IN ('abandon', 'release') AND j.`delay` = 0;
END$$
DELIMITER ;

-- Looks at one window. What needs a hand is found without locks, then locked by id, passing over what others work on, and
-- judged again: claims must not meet the locks of a walk through the whole window.
DROP PROCEDURE IF EXISTS `pillarbox_outbox_reap_rows`;
DELIMITER $$
CREATE PROCEDURE `pillarbox_outbox_reap_rows`(p_after BIGINT, p_window INT, p_lost_leases_max INT)
    SQL SECURITY INVOKER
BEGIN
    DECLARE v_now DATETIME(6) DEFAULT UTC_TIMESTAMP(6);
    DECLARE v_never DATETIME(6) DEFAULT '9999-12-31';
    DECLARE v_reason_expired VARCHAR(255) CHARACTER SET utf8mb4 DEFAULT 'expired: expires_at passed before it was handled';
    DECLARE v_reason_lost VARCHAR(255) CHARACTER SET utf8mb4
        DEFAULT 'lease lost too often: its workers stopped without settling it';
    DECLARE v_last BIGINT;
    DECLARE v_seen INT;
    DECLARE v_found LONGTEXT CHARACTER SET utf8mb4;
    DECLARE v_ids LONGTEXT CHARACTER SET utf8mb4;
    DECLARE v_expired INT DEFAULT 0;
    DECLARE v_lost INT DEFAULT 0;
    DECLARE v_released INT DEFAULT 0;
    DECLARE v_lowest BIGINT;
    SET SESSION group_concat_max_len = GREATEST(@@SESSION.group_concat_max_len, 1048576);
    IF p_after IS NULL THEN
        SELECT JSON_ARRAYAGG(w.`id`), COUNT(*) INTO v_ids, v_expired
        FROM (
            SELECT `id` FROM `pillarbox_outbox_shelf`
            WHERE `state` = 'pending' AND `wake_at` <= v_now AND `expires_at` <= v_now
            ORDER BY `wake_at`, `settled_at`, `id` LIMIT p_window FOR UPDATE SKIP LOCKED
        ) AS w;
        IF v_expired > 0 THEN
            UPDATE JSON_TABLE(v_ids, '$[*]' COLUMNS (`id` BIGINT PATH '$')) AS j
            STRAIGHT_JOIN `pillarbox_outbox_shelf` AS s FORCE INDEX (PRIMARY) ON s.`id` = j.`id`
            SET s.`state` = 'dead', s.`wake_at` = NULL, s.`settled_at` = v_now, s.`settled_by` = NULL,
                s.`last_error` = v_reason_expired;
        END IF;
    END IF;
    SELECT MAX(w.`id`), COUNT(*) INTO v_last, v_seen
    FROM (
        SELECT `id` FROM `pillarbox_outbox` WHERE `id` > COALESCE(p_after, 0) ORDER BY `id` LIMIT p_window
    ) AS w;
    SELECT JSON_ARRAYAGG(`id`) INTO v_found
    FROM `pillarbox_outbox`
    WHERE `id` > COALESCE(p_after, 0) AND `id` <= v_last AND (`owner_token` IS NULL OR `locked_until` <= v_now)
        AND (`owner_token` IS NOT NULL OR `expires_at` <= v_now OR `due_at` > v_now);
    IF v_found IS NOT NULL THEN
        SELECT JSON_ARRAYAGG(w.`id`), COALESCE(SUM(w.`fate` = 'expired'), 0) + v_expired,
            COALESCE(SUM(w.`fate` = 'lost'), 0), COALESCE(SUM(w.`fate` = 'released'), 0),
            MIN(IF(w.`fate` = 'released', w.`id`, NULL))
        INTO v_ids, v_expired, v_lost, v_released, v_lowest
        FROM (
            SELECT l.`id`,
                CASE
                    WHEN l.`expires_at` <= v_now THEN 'expired'
                    WHEN l.`owner_token` IS NULL THEN 'parked'
                    WHEN l.`lost_lease_count` >= p_lost_leases_max THEN 'lost'
                    ELSE 'released'
                END AS `fate`
            FROM JSON_TABLE(v_found, '$[*]' COLUMNS (`id` BIGINT PATH '$')) AS j
            STRAIGHT_JOIN `pillarbox_outbox` AS l FORCE INDEX (PRIMARY) ON l.`id` = j.`id`
            WHERE (l.`owner_token` IS NULL OR l.`locked_until` <= v_now)
                AND (l.`owner_token` IS NOT NULL OR l.`expires_at` <= v_now OR l.`due_at` > v_now)
            LIMIT 1000000 FOR UPDATE SKIP LOCKED
        ) AS w;
        INSERT INTO `pillarbox_outbox_shelf`
        (`id`, `message_id`, `topic`, `payload`, `created_at`, `due_at`, `expires_at`, `attempts`,
        `lost_lease_count`, `priority`, `message_type`, `aggregate_type`, `aggregate_id`, `tenant_id`,
        `message_key`, `correlation_id`, `causation_id`, `content_type`, `headers`, `occurred_at`, `last_error`,
        `state`, `wake_at`, `settled_at`, `settled_by`, `is_receipt`)
        SELECT
        l.`id`, l.`message_id`, l.`topic`, l.`payload`, l.`created_at`, l.`due_at`, l.`expires_at`, l.`attempts`,
        l.`lost_lease_count`, l.`priority`, l.`message_type`, l.`aggregate_type`, l.`aggregate_id`, l.`tenant_id`,
        l.`message_key`, l.`correlation_id`, l.`causation_id`, l.`content_type`, l.`headers`, l.`occurred_at`,
        l.`last_error`, 'pending', LEAST(l.`due_at`, COALESCE(l.`expires_at`, v_never)), NULL, NULL, FALSE
        FROM JSON_TABLE(v_ids, '$[*]' COLUMNS (`id` BIGINT PATH '$')) AS j
        STRAIGHT_JOIN `pillarbox_outbox` AS l FORCE INDEX (PRIMARY) ON l.`id` = j.`id`
        WHERE l.`owner_token` IS NULL AND l.`due_at` > v_now AND (l.`expires_at` IS NULL OR l.`expires_at` > v_now)
        ON DUPLICATE KEY UPDATE `pillarbox_outbox_shelf`.`id` = `pillarbox_outbox_shelf`.`id`;
        INSERT INTO `pillarbox_outbox_shelf`
        (`id`, `message_id`, `topic`, `payload`, `created_at`, `due_at`, `expires_at`, `attempts`,
        `lost_lease_count`, `priority`, `message_type`, `aggregate_type`, `aggregate_id`, `tenant_id`,
        `message_key`, `correlation_id`, `causation_id`, `content_type`, `headers`, `occurred_at`, `last_error`,
        `state`, `wake_at`, `settled_at`, `settled_by`, `is_receipt`)
        SELECT
        l.`id`, l.`message_id`, l.`topic`, l.`payload`, l.`created_at`, l.`due_at`, l.`expires_at`, l.`attempts`,
        LEAST(l.`lost_lease_count`, 2147483646) + (l.`owner_token` IS NOT NULL), l.`priority`, l.`message_type`,
        l.`aggregate_type`, l.`aggregate_id`, l.`tenant_id`, l.`message_key`, l.`correlation_id`, l.`causation_id`,
        l.`content_type`, l.`headers`, l.`occurred_at`,
        IF(l.`expires_at` <= v_now, v_reason_expired, v_reason_lost), 'dead', NULL, v_now, NULL, FALSE
        FROM JSON_TABLE(v_ids, '$[*]' COLUMNS (`id` BIGINT PATH '$')) AS j
        STRAIGHT_JOIN `pillarbox_outbox` AS l FORCE INDEX (PRIMARY) ON l.`id` = j.`id`
        WHERE l.`expires_at` <= v_now OR (l.`owner_token` IS NOT NULL AND l.`lost_lease_count` >= p_lost_leases_max)
        ON DUPLICATE KEY UPDATE `pillarbox_outbox_shelf`.`id` = `pillarbox_outbox_shelf`.`id`;
        DELETE l
        FROM JSON_TABLE(v_ids, '$[*]' COLUMNS (`id` BIGINT PATH '$')) AS j
        STRAIGHT_JOIN `pillarbox_outbox` AS l FORCE INDEX (PRIMARY) ON l.`id` = j.`id`
        WHERE l.`expires_at` <= v_now OR l.`owner_token` IS NULL OR l.`lost_lease_count` >= p_lost_leases_max;
        UPDATE JSON_TABLE(v_ids, '$[*]' COLUMNS (`id` BIGINT PATH '$')) AS j
        STRAIGHT_JOIN `pillarbox_outbox` AS l FORCE INDEX (PRIMARY) ON l.`id` = j.`id`
        SET l.`lost_lease_count` = LEAST(l.`lost_lease_count`, 2147483646) + 1,
            l.`owner_token` = NULL, l.`locked_until` = NULL, l.`fence` = 0;
    END IF;
    SELECT v_released AS `released`, v_lost AS `lost`, v_expired AS `expired`,
        IF(v_seen = p_window, v_last, NULL) AS `next`, v_lowest AS `lowest_released`;
END$$
DELIMITER ;

-- For other languages: stores a message in the caller's open transaction; a message_id of NULL draws one. Answers one row,
-- or none when the message is known already.
DROP PROCEDURE IF EXISTS `pillarbox_outbox_enqueue`;
DELIMITER $$
CREATE PROCEDURE `pillarbox_outbox_enqueue`(
    p_message_id BINARY(16), p_topic VARCHAR(255) CHARACTER SET utf8mb4, p_payload LONGBLOB,
    p_message_type VARCHAR(255) CHARACTER SET utf8mb4, p_message_key VARCHAR(255) CHARACTER SET utf8mb4,
    p_correlation_id VARCHAR(255) CHARACTER SET utf8mb4, p_content_type VARCHAR(255) CHARACTER SET utf8mb4,
    p_headers LONGTEXT CHARACTER SET utf8mb4, p_delay_seconds INT)
    SQL SECURITY INVOKER
BEGIN
    CALL `pillarbox_outbox_enqueue_one`(
        COALESCE(p_message_id, UNHEX(REPLACE(UUID(), '-', ''))), p_topic, p_payload, p_message_type, NULL, NULL, NULL,
        p_message_key, p_correlation_id, NULL, p_content_type, p_headers, NULL, NULL, NULLIF(p_delay_seconds, 0) * 1000000,
        NULL, NULL, 0, NULL, 1 + FLOOR(RAND() * 9007199254740991), NULL);
END$$
DELIMITER ;

-- For other languages: leases up to `p_limit` messages to the owner. Keep `fence` of each row: settling needs it.
DROP PROCEDURE IF EXISTS `pillarbox_outbox_claim`;
DELIMITER $$
CREATE PROCEDURE `pillarbox_outbox_claim`(p_owner BINARY(16), p_lease_seconds INT, p_limit INT)
    SQL SECURITY INVOKER
BEGIN
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    BEGIN
        DECLARE EXIT HANDLER FOR SQLEXCEPTION
        BEGIN
            ROLLBACK;
            RESIGNAL;
        END;
        START TRANSACTION;
        CALL `pillarbox_outbox_claim_rows`(
            p_owner, 1 + FLOOR(RAND() * 9007199254740991), p_lease_seconds * 1000000, p_limit, 0, 5);
        COMMIT;
    END;
END$$
DELIMITER ;

-- For other languages: the message is done and kept for the retention. Answers its id, or nothing when the lease was lost.
DROP PROCEDURE IF EXISTS `pillarbox_outbox_ack`;
DELIMITER $$
CREATE PROCEDURE `pillarbox_outbox_ack`(p_owner BINARY(16), p_id BIGINT, p_fence BIGINT)
    SQL SECURITY INVOKER
BEGIN
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    BEGIN
        DECLARE EXIT HANDLER FOR SQLEXCEPTION
        BEGIN
            ROLLBACK;
            RESIGNAL;
        END;
        START TRANSACTION;
        CALL `pillarbox_outbox_settle_rows`(
            p_owner, JSON_ARRAY(JSON_ARRAY(p_id, p_fence, 'keep', 0, NULL)));
        COMMIT;
    END;
END$$
DELIMITER ;

-- For other languages: another attempt after the delay; answers like ack.
DROP PROCEDURE IF EXISTS `pillarbox_outbox_abandon`;
DELIMITER $$
CREATE PROCEDURE `pillarbox_outbox_abandon`(
    p_owner BINARY(16), p_id BIGINT, p_fence BIGINT, p_delay_seconds INT, p_reason TEXT CHARACTER SET utf8mb4)
    SQL SECURITY INVOKER
BEGIN
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    BEGIN
        DECLARE EXIT HANDLER FOR SQLEXCEPTION
        BEGIN
            ROLLBACK;
            RESIGNAL;
        END;
        START TRANSACTION;
        CALL `pillarbox_outbox_settle_rows`(
            p_owner, JSON_ARRAY(JSON_ARRAY(p_id, p_fence, 'abandon', p_delay_seconds * 1000000, LEFT(p_reason, 4000))));
        COMMIT;
    END;
END$$
DELIMITER ;

-- For other languages: the message is dead; answers like ack.
DROP PROCEDURE IF EXISTS `pillarbox_outbox_fail`;
DELIMITER $$
CREATE PROCEDURE `pillarbox_outbox_fail`(
    p_owner BINARY(16), p_id BIGINT, p_fence BIGINT, p_reason TEXT CHARACTER SET utf8mb4)
    SQL SECURITY INVOKER
BEGIN
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    BEGIN
        DECLARE EXIT HANDLER FOR SQLEXCEPTION
        BEGIN
            ROLLBACK;
            RESIGNAL;
        END;
        START TRANSACTION;
        CALL `pillarbox_outbox_settle_rows`(
            p_owner, JSON_ARRAY(JSON_ARRAY(p_id, p_fence, 'fail', 0, LEFT(p_reason, 4000))));
        COMMIT;
    END;
END$$
DELIMITER ;

-- For other languages: looks at one window of rows with a higher id than `p_after` (NULL: from the start), buries what expired
-- and frees what lost its lease. Call it again with `next` until that is NULL.
DROP PROCEDURE IF EXISTS `pillarbox_outbox_reap`;
DELIMITER $$
CREATE PROCEDURE `pillarbox_outbox_reap`(p_after BIGINT, p_window INT)
    SQL SECURITY INVOKER
BEGIN
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    BEGIN
        DECLARE EXIT HANDLER FOR SQLEXCEPTION
        BEGIN
            ROLLBACK;
            RESIGNAL;
        END;
        START TRANSACTION;
        CALL `pillarbox_outbox_reap_rows`(p_after, p_window, 5);
        COMMIT;
    END;
END$$
DELIMITER ;

-- What the library calls for verdicts that carry text; acks alone travel as plain statements.
DROP PROCEDURE IF EXISTS `pillarbox_outbox_settle`;
DELIMITER $$
CREATE PROCEDURE `pillarbox_outbox_settle`(p_owner BINARY(16), p_verdicts LONGTEXT CHARACTER SET utf8mb4)
    SQL SECURITY INVOKER
BEGIN
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    BEGIN
        DECLARE EXIT HANDLER FOR SQLEXCEPTION
        BEGIN
            ROLLBACK;
            RESIGNAL;
        END;
        START TRANSACTION;
        CALL `pillarbox_outbox_settle_rows`(p_owner, p_verdicts);
        COMMIT;
    END;
END$$
DELIMITER ;

-- Settles one batch and claims the next: one round trip, one transaction.
DROP PROCEDURE IF EXISTS `pillarbox_outbox_exchange`;
DELIMITER $$
CREATE PROCEDURE `pillarbox_outbox_exchange`(
    p_owner BINARY(16), p_verdicts LONGTEXT CHARACTER SET utf8mb4,
    p_fence BIGINT, p_lease BIGINT, p_limit INT, p_floor BIGINT, p_lost_leases_max INT)
    SQL SECURITY INVOKER
BEGIN
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    BEGIN
        DECLARE EXIT HANDLER FOR SQLEXCEPTION
        BEGIN
            ROLLBACK;
            RESIGNAL;
        END;
        START TRANSACTION;
        CALL `pillarbox_outbox_settle_rows`(p_owner, p_verdicts);
        CALL `pillarbox_outbox_claim_rows`(p_owner, p_fence, p_lease, p_limit, p_floor, p_lost_leases_max);
        COMMIT;
    END;
END$$
DELIMITER ;
