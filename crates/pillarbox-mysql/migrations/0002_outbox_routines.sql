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
    p_expires_at BIGINT, p_expires_after BIGINT, p_priority SMALLINT, p_key_hash BIGINT,
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
        `message_key`, `key_hash`, `correlation_id`, `causation_id`, `content_type`, `headers`, `occurred_at`)
    VALUES (p_message_id, p_topic, p_payload, v_now, v_due, v_expires, v_leased,
        p_priority, IF(v_leased, p_owner, NULL), IF(v_leased, v_now + INTERVAL p_lease MICROSECOND, NULL), p_fence,
        p_message_type, p_aggregate_type, p_aggregate_id, p_tenant_id, p_message_key, p_key_hash, p_correlation_id,
        p_causation_id, p_content_type, p_headers, TIMESTAMPADD(MICROSECOND, p_occurred_at, '1970-01-01'))
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
                    `message_key`, `key_hash`, `correlation_id`, `causation_id`, `content_type`, `headers`, `occurred_at`,
                    `last_error`, `state`, `wake_at`)
                SELECT `id`, `message_id`, `topic`, `payload`, `created_at`, `due_at`, `expires_at`, `attempts`,
                    `lost_lease_count`, `priority`, `message_type`, `aggregate_type`, `aggregate_id`, `tenant_id`,
                    `message_key`, `key_hash`, `correlation_id`, `causation_id`, `content_type`, `headers`, `occurred_at`,
                    `last_error`, 'pending', LEAST(v_due, COALESCE(v_expires, v_never))
                FROM `pillarbox_outbox` WHERE `id` = v_id;
                DELETE FROM `pillarbox_outbox` WHERE `id` = v_id;
            END IF;
            IF p_message_key IS NOT NULL THEN
                INSERT INTO `pillarbox_outbox_lane` (`id`, `message_key`, `place`)
                VALUES (v_id, p_message_key, IF(v_due > v_now, 'waiting', 'live'))
                ON DUPLICATE KEY UPDATE `message_key` = VALUES(`message_key`), `place` = VALUES(`place`), `is_clear` = FALSE;
            END IF;
            SELECT v_id AS `id`, p_message_id AS `message_id`, v_leased AS `leased`;
        END IF;
    END IF;
END$$
DELIMITER ;

-- Stores a list of messages in the caller's transaction, one after the other. Bytes come as hexadecimal digits. Answers a row
-- for each that is new. (An insert that selects from the list would hold up every other writer, where the server hands out numbers
-- in the old way, for as long as it waits for one message.)
DROP PROCEDURE IF EXISTS `pillarbox_outbox_enqueue_many`;
DELIMITER $$
CREATE PROCEDURE `pillarbox_outbox_enqueue_many`(
    p_messages LONGTEXT CHARACTER SET utf8mb4, p_owner BINARY(16), p_fence BIGINT, p_lease BIGINT)
    SQL SECURITY INVOKER
BEGIN
    DECLARE v_end BOOLEAN;
    DECLARE v_message_id VARCHAR(32) CHARACTER SET utf8mb4;
    DECLARE v_topic VARCHAR(255) CHARACTER SET utf8mb4;
    DECLARE v_payload LONGTEXT CHARACTER SET utf8mb4;
    DECLARE v_message_type VARCHAR(255) CHARACTER SET utf8mb4;
    DECLARE v_aggregate_type VARCHAR(255) CHARACTER SET utf8mb4;
    DECLARE v_aggregate_id VARCHAR(255) CHARACTER SET utf8mb4;
    DECLARE v_tenant_id VARCHAR(255) CHARACTER SET utf8mb4;
    DECLARE v_message_key VARCHAR(255) CHARACTER SET utf8mb4;
    DECLARE v_correlation_id VARCHAR(255) CHARACTER SET utf8mb4;
    DECLARE v_causation_id VARCHAR(255) CHARACTER SET utf8mb4;
    DECLARE v_content_type VARCHAR(255) CHARACTER SET utf8mb4;
    DECLARE v_headers LONGTEXT CHARACTER SET utf8mb4;
    DECLARE v_occurred_at BIGINT;
    DECLARE v_due_at BIGINT;
    DECLARE v_due_after BIGINT;
    DECLARE v_expires_at BIGINT;
    DECLARE v_expires_after BIGINT;
    DECLARE v_priority SMALLINT;
    DECLARE v_key_hash BIGINT;
    DECLARE c_messages CURSOR FOR
        SELECT j.* FROM JSON_TABLE(p_messages, '$[*]' COLUMNS (
            `message_id` VARCHAR(32) CHARACTER SET utf8mb4 PATH '$[0]',
            `topic` VARCHAR(255) CHARACTER SET utf8mb4 PATH '$[1]',
            `payload` LONGTEXT CHARACTER SET utf8mb4 PATH '$[2]',
            `message_type` VARCHAR(255) CHARACTER SET utf8mb4 PATH '$[3]',
            `aggregate_type` VARCHAR(255) CHARACTER SET utf8mb4 PATH '$[4]',
            `aggregate_id` VARCHAR(255) CHARACTER SET utf8mb4 PATH '$[5]',
            `tenant_id` VARCHAR(255) CHARACTER SET utf8mb4 PATH '$[6]',
            `message_key` VARCHAR(255) CHARACTER SET utf8mb4 PATH '$[7]',
            `correlation_id` VARCHAR(255) CHARACTER SET utf8mb4 PATH '$[8]',
            `causation_id` VARCHAR(255) CHARACTER SET utf8mb4 PATH '$[9]',
            `content_type` VARCHAR(255) CHARACTER SET utf8mb4 PATH '$[10]',
            `headers` LONGTEXT CHARACTER SET utf8mb4 PATH '$[11]', `occurred_at` BIGINT PATH '$[12]',
            `due_at` BIGINT PATH '$[13]', `due_after` BIGINT PATH '$[14]', `expires_at` BIGINT PATH '$[15]',
            `expires_after` BIGINT PATH '$[16]', `priority` SMALLINT PATH '$[17]', `key_hash` BIGINT PATH '$[18]'
        )) AS j;
    DECLARE CONTINUE HANDLER FOR NOT FOUND SET v_end = TRUE;
    OPEN c_messages;
    next_message: LOOP
        SET v_end = FALSE;
        FETCH c_messages INTO
            v_message_id, v_topic, v_payload, v_message_type, v_aggregate_type, v_aggregate_id, v_tenant_id,
            v_message_key, v_correlation_id, v_causation_id, v_content_type, v_headers, v_occurred_at, v_due_at,
            v_due_after, v_expires_at, v_expires_after, v_priority, v_key_hash;
        IF v_end THEN
            LEAVE next_message;
        END IF;
        CALL `pillarbox_outbox_enqueue_one`(
            UNHEX(v_message_id), v_topic, UNHEX(v_payload), v_message_type, v_aggregate_type, v_aggregate_id,
            v_tenant_id, v_message_key, v_correlation_id, v_causation_id, v_content_type, v_headers, v_occurred_at,
            v_due_at, v_due_after, v_expires_at, v_expires_after, v_priority, v_key_hash, p_owner, p_fence, p_lease);
    END LOOP;
    CLOSE c_messages;
END$$
DELIMITER ;

-- Of rows that a claim has just locked, leaves those that the order of their keys allows. Nobody waits for anybody: of two
-- claimers of one key the one that locked later finds the other's row, locked or under its lease, and lets go of the key.
-- So every look at other rows comes after our locks. `p_last` is the highest row of the hot table, 0 for rows of the shelf;
-- `p_top` is the highest row whose key counts.
DROP PROCEDURE IF EXISTS `pillarbox_outbox_claim_runs`;
DELIMITER $$
CREATE PROCEDURE `pillarbox_outbox_claim_runs`(
    p_now DATETIME(6), p_floor BIGINT, p_last BIGINT, p_top BIGINT, p_order INT, INOUT p_ids LONGTEXT CHARACTER SET utf8mb4)
    SQL SECURITY INVOKER
BEGIN
    -- What is due so soon may be woken by a claim that began after this one.
    DECLARE v_soon DATETIME(6) DEFAULT p_now + INTERVAL 1 MINUTE;
    DECLARE v_end BIGINT DEFAULT 9223372036854775807;
    DECLARE v_in_sequence BOOLEAN DEFAULT p_order & 2;
    DECLARE v_dead_hold BOOLEAN DEFAULT p_order & 1;
    DECLARE v_stop BIGINT;
    DECLARE v_rows LONGTEXT CHARACTER SET utf8mb4 DEFAULT p_ids;
    DECLARE v_near LONGTEXT CHARACTER SET utf8mb4;
    DECLARE v_live LONGTEXT CHARACTER SET utf8mb4;
    DECLARE v_waiting LONGTEXT CHARACTER SET utf8mb4;
    DECLARE v_mark BIGINT DEFAULT v_end;
    DECLARE v_deep INT DEFAULT 0;
    DECLARE v_pending BOOLEAN;
    DECLARE v_reach BIGINT;
    DECLARE v_due LONGTEXT CHARACTER SET utf8mb4;
    DECLARE v_next LONGTEXT CHARACTER SET utf8mb4 DEFAULT '[]';
    -- Rows from the mark on are in nobody's hands. Of two claimers of one key, either the one with the later row has raised the
    -- mark before the other one reads it, who then looks at that row; or the other one has locked its row before, and is
    -- seen. SETVAL takes nothing but a number that is written out, and never lowers.
    /*M!100600 SELECT `next_not_cached_value` INTO v_mark FROM `pillarbox_outbox_claimed`;
    IF p_top >= v_mark THEN
        EXECUTE IMMEDIATE CONCAT('DO SETVAL(`pillarbox_outbox_claimed`, ', p_top, ')');
        SELECT `next_not_cached_value` INTO v_mark FROM `pillarbox_outbox_claimed`;
    END IF; */
    -- Only a run without gaps, and nothing behind the shelf. One statement, so one snapshot: a row that somebody moves from
    -- the one table to the other is seen in one of them. For rows of the shelf the scan has seen to what is on the shelf:
    -- that comes from the hot table only, where it was their obstacle already. What came to the hot table since is asked for.
    IF p_last > 0 AND v_in_sequence THEN
        SELECT LEAST(
            COALESCE((
                SELECT MIN(x.`id`) FROM `pillarbox_outbox` AS x FORCE INDEX (PRIMARY)
                WHERE x.`id` <= p_last
                    AND x.`id` NOT IN (SELECT i.`id` FROM JSON_TABLE(v_rows, '$[*]' COLUMNS (`id` BIGINT PATH '$')) AS i)
            ), v_end),
            COALESCE((
                SELECT MIN(h.`id`) FROM `pillarbox_outbox_shelf` AS h FORCE INDEX (`state`)
                WHERE (h.`state` = 'pending' AND h.`settled_by` IS NOT NULL) OR (v_dead_hold AND h.`state` = 'dead')
            ), v_end)
        ) INTO v_stop;
        SELECT JSON_ARRAYAGG(j.`id`) INTO p_ids
        FROM JSON_TABLE(v_rows, '$[*]' COLUMNS (`id` BIGINT PATH '$')) AS j WHERE j.`id` < v_stop;
    ELSEIF p_last > 0 THEN
        SELECT JSON_ARRAYAGG(r.`id`) INTO p_ids
        FROM JSON_TABLE(v_rows, '$[*]' COLUMNS (`id` BIGINT PATH '$')) AS j
        STRAIGHT_JOIN `pillarbox_outbox` AS r FORCE INDEX (PRIMARY) ON r.`id` = j.`id`
        LEFT JOIN (
            SELECT x.`message_key`, MIN(x.`id`) AS `id`, MAX(COALESCE(x.`locked_until` > p_now, FALSE)) AS `held`
            FROM `pillarbox_outbox` AS x FORCE INDEX (PRIMARY)
            WHERE x.`id` > p_floor AND x.`id` < p_last AND x.`message_key` IS NOT NULL
                AND x.`id` NOT IN (SELECT i.`id` FROM JSON_TABLE(v_rows, '$[*]' COLUMNS (`id` BIGINT PATH '$')) AS i)
            GROUP BY x.`message_key`
        ) AS g ON g.`message_key` = r.`message_key`
        WHERE r.`message_key` IS NULL OR ((g.`id` IS NULL OR (g.`id` > r.`id` AND NOT g.`held`))
            AND (
                SELECT n.`id` FROM `pillarbox_outbox_lane` AS n FORCE INDEX (`lane`)
                STRAIGHT_JOIN `pillarbox_outbox` AS f FORCE INDEX (PRIMARY) ON f.`id` = n.`id`
                WHERE n.`message_key` = r.`message_key` AND n.`place` = 'live' AND n.`id` <= p_floor LIMIT 1
            ) IS NULL
            AND (NOT EXISTS (SELECT 1 FROM `pillarbox_outbox_shelf` AS b FORCE INDEX (`state`) WHERE b.`state` = 'pending')
                OR COALESCE((
                SELECT n.`id` FROM `pillarbox_outbox_lane` AS n FORCE INDEX (`lane`)
                STRAIGHT_JOIN `pillarbox_outbox_shelf` AS h FORCE INDEX (PRIMARY) ON h.`id` = n.`id`
                WHERE n.`message_key` = r.`message_key` AND n.`place` = 'waiting'
                    AND h.`state` = 'pending' AND h.`settled_by` IS NOT NULL
                ORDER BY n.`id` LIMIT 1
            ) > r.`id`, TRUE))
            AND (NOT v_dead_hold
                OR NOT EXISTS (SELECT 1 FROM `pillarbox_outbox_shelf` AS b FORCE INDEX (`state`) WHERE b.`state` = 'dead')
                OR COALESCE((
                SELECT n.`id` FROM `pillarbox_outbox_lane` AS n FORCE INDEX (`lane`)
                STRAIGHT_JOIN `pillarbox_outbox_shelf` AS d FORCE INDEX (PRIMARY) ON d.`id` = n.`id`
                WHERE n.`message_key` = r.`message_key` AND n.`place` = 'dead' AND d.`state` = 'dead'
                ORDER BY n.`id` LIMIT 1
            ) > r.`id`, TRUE)));
    ELSEIF NOT v_in_sequence THEN
        SELECT JSON_ARRAYAGG(j.`id`) INTO p_ids
        FROM JSON_TABLE(v_rows, '$[*]' COLUMNS (`id` BIGINT PATH '$')) AS j
        LEFT JOIN `pillarbox_outbox_lane` AS w FORCE INDEX (PRIMARY) ON w.`id` = j.`id`
        WHERE w.`id` IS NULL OR (
            SELECT n.`id` FROM `pillarbox_outbox_lane` AS n FORCE INDEX (`lane`)
            STRAIGHT_JOIN `pillarbox_outbox` AS f FORCE INDEX (PRIMARY) ON f.`id` = n.`id`
            WHERE n.`message_key` = w.`message_key` AND n.`place` = 'live' AND n.`id` < j.`id` LIMIT 1
        ) IS NULL;
    END IF;
    SET v_rows = p_ids;
    -- Who else may be at the key: the next rows of the hot table, and those of the shelf that are due. Rows before one that is
    -- held come from transactions that overlap, or came back. All below the mark are looked at. MySQL has no mark: there it is
    -- four of them, and because rows that were given back or replayed (their fence is -1) or lost their lease can be many,
    -- the first one that is none of those.
    IF v_rows IS NULL THEN
        SET v_near = NULL;
    ELSEIF v_in_sequence THEN
        SELECT CONCAT('[', GROUP_CONCAT(n.`id`), ']') INTO v_near
        FROM (
            (SELECT x.`id` FROM `pillarbox_outbox` AS x
            WHERE x.`id` > LEAST(p_last, COALESCE(v_stop, v_end) - 1) ORDER BY x.`id` LIMIT 4)
            UNION
            (SELECT x.`id` FROM `pillarbox_outbox` AS x
            WHERE x.`id` > LEAST(p_last, COALESCE(v_stop, v_end) - 1)
                AND (x.`locked_until` > p_now OR (x.`owner_token` IS NULL AND x.`fence` >= 0))
            ORDER BY x.`id` LIMIT 4)
            /*M!100600 UNION
            (SELECT x.`id` FROM `pillarbox_outbox` AS x
            WHERE x.`id` > LEAST(p_last, COALESCE(v_stop, v_end) - 1) AND x.`id` < v_mark ORDER BY x.`id` LIMIT 10000)
            UNION
            (SELECT x.`id` FROM `pillarbox_outbox` AS x
            WHERE x.`id` > LEAST(p_last, COALESCE(v_stop, v_end) - 1) AND x.`id` < v_mark AND x.`locked_until` > p_now
            LIMIT 1) */
            UNION
            (SELECT s.`id` FROM `pillarbox_outbox_shelf` AS s
            WHERE s.`state` = 'pending' AND s.`wake_at` <= v_soon AND s.`due_at` <= v_soon
            ORDER BY s.`wake_at`, s.`settled_at`, s.`id` LIMIT 10000)
        ) AS n;
    ELSE
        -- Those that are due on the shelf first: a claim that takes one moves it to the others.
        SELECT EXISTS (SELECT 1 FROM `pillarbox_outbox_shelf` FORCE INDEX (`state`) WHERE `state` = 'pending') INTO v_pending;
        IF v_pending THEN
            SELECT GROUP_CONCAT(s.`id`) INTO v_due
            FROM (
                SELECT DISTINCT n.`message_key`
                FROM JSON_TABLE(v_rows, '$[*]' COLUMNS (`id` BIGINT PATH '$')) AS j
                STRAIGHT_JOIN `pillarbox_outbox_lane` AS n FORCE INDEX (PRIMARY) ON n.`id` = j.`id`
            ) AS k
            STRAIGHT_JOIN `pillarbox_outbox_lane` AS w FORCE INDEX (`lane`)
                ON w.`message_key` = k.`message_key` AND w.`place` = 'waiting'
            STRAIGHT_JOIN `pillarbox_outbox_shelf` AS s FORCE INDEX (PRIMARY) ON s.`id` = w.`id`
            WHERE s.`state` = 'pending' AND s.`due_at` <= v_soon;
        END IF;
        SET v_deep = 1001;
        /*M!100600 SELECT CONCAT('[', GROUP_CONCAT(n.`id`), ']'), COUNT(*) INTO v_near, v_deep
        FROM (
            SELECT x.`id`
            FROM (
                SELECT n.`message_key`, MAX(IF(n.`place` = 'live', n.`id`, 0)) AS `last`
                FROM JSON_TABLE(v_rows, '$[*]' COLUMNS (`id` BIGINT PATH '$')) AS j
                STRAIGHT_JOIN `pillarbox_outbox_lane` AS n FORCE INDEX (PRIMARY) ON n.`id` = j.`id`
                GROUP BY n.`message_key`
            ) AS k
            STRAIGHT_JOIN `pillarbox_outbox_lane` AS x FORCE INDEX (`lane`)
                ON x.`message_key` = k.`message_key` AND x.`place` = 'live' AND x.`id` > k.`last` AND x.`id` < v_mark
            LIMIT 1001
        ) AS n; */
        -- Mostly these are all. Else those that are too many are told apart by their key.
        IF v_deep > 1000 THEN
            WITH k AS (
                SELECT n.`message_key`, MAX(IF(n.`place` = 'live', n.`id`, 0)) AS `last`
                FROM JSON_TABLE(v_rows, '$[*]' COLUMNS (`id` BIGINT PATH '$')) AS j
                STRAIGHT_JOIN `pillarbox_outbox_lane` AS n FORCE INDEX (PRIMARY) ON n.`id` = j.`id`
                GROUP BY n.`message_key`
            )
            SELECT CONCAT('[', GROUP_CONCAT(n.`ids`), ']'), COALESCE(SUM(n.`is_deep`), 0) INTO v_near, v_deep
            FROM (
                SELECT x.`id` AS `ids`, x.`id` <=> q.`fifth` AS `is_deep`
                FROM (
                    SELECT k.`message_key`, k.`last`, (
                            SELECT n.`id` FROM `pillarbox_outbox_lane` AS n FORCE INDEX (`lane`)
                            WHERE n.`message_key` = k.`message_key` AND n.`place` = 'live' AND n.`id` > k.`last`
                                AND n.`id` < v_mark
                            ORDER BY n.`id` LIMIT 1 OFFSET 4) AS `fifth`
                    FROM k
                ) AS q
                STRAIGHT_JOIN `pillarbox_outbox_lane` AS x FORCE INDEX (`lane`)
                    ON x.`message_key` = q.`message_key` AND x.`place` = 'live' AND x.`id` > q.`last` AND x.`id` < v_mark
                WHERE x.`id` <= COALESCE(q.`fifth`, v_end)
                /*!80000 UNION ALL
                SELECT (SELECT n.`id` FROM `pillarbox_outbox_lane` AS n FORCE INDEX (`lane`)
                    STRAIGHT_JOIN `pillarbox_outbox` AS x FORCE INDEX (PRIMARY) ON x.`id` = n.`id`
                    WHERE n.`message_key` = k.`message_key` AND n.`place` = 'live' AND n.`id` > k.`last`
                        AND (x.`locked_until` > p_now OR (x.`owner_token` IS NULL AND x.`fence` >= 0))
                    ORDER BY n.`id` LIMIT 1) AS `ids`, FALSE AS `is_deep`
                FROM k */
            ) AS n;
        ELSE
            SET v_deep = 0;
        END IF;
        SET v_near = IF(v_due IS NULL, v_near,
            CONCAT('[', CONCAT_WS(',', SUBSTR(v_near, 2, CHAR_LENGTH(v_near) - 2), v_due), ']'));
        -- A key of which others have gone past a long backlog. It is looked through once: as long as a row that is clear stands
        -- there for all to see, nobody takes a later one. So the look ends at the first that is clear, and is spared where
        -- one of ours is, until now. The next row will be clear when all of them could be locked.
        /*M!100600 IF v_deep > 0 THEN
            SET SESSION group_concat_max_len = GREATEST(@@SESSION.group_concat_max_len, 16777216);
            FOR d IN (
                SELECT o.`message_key`, o.`last`, o.`is_clear`, (
                        SELECT n.`id` FROM `pillarbox_outbox_lane` AS n FORCE INDEX (`lane`)
                        STRAIGHT_JOIN `pillarbox_outbox` AS x FORCE INDEX (PRIMARY) ON x.`id` = n.`id`
                        WHERE n.`message_key` = o.`message_key` AND n.`place` = 'live' AND n.`id` > o.`last`
                        ORDER BY n.`id` LIMIT 1) AS `next`
                FROM (
                    SELECT c.`message_key`, COALESCE(MAX(l.`id`), 0) AS `last`, MAX(c.`is_clear`) AS `is_clear`
                    FROM JSON_TABLE(v_rows, '$[*]' COLUMNS (`id` BIGINT PATH '$')) AS j
                    STRAIGHT_JOIN `pillarbox_outbox_lane` AS c FORCE INDEX (PRIMARY) ON c.`id` = j.`id`
                    LEFT JOIN `pillarbox_outbox` AS l FORCE INDEX (PRIMARY) ON l.`id` = j.`id`
                    GROUP BY c.`message_key`
                ) AS o
                WHERE (
                    SELECT n.`id` FROM `pillarbox_outbox_lane` AS n FORCE INDEX (`lane`)
                    WHERE n.`message_key` = o.`message_key` AND n.`place` = 'live' AND n.`id` > o.`last`
                    ORDER BY n.`id` LIMIT 1 OFFSET 3) < v_mark
            ) DO
                SET v_next = JSON_ARRAY_APPEND(v_next, '$', d.`next`);
                IF NOT d.`is_clear` THEN
                    SELECT COALESCE((
                        SELECT e.`id` FROM `pillarbox_outbox_lane` AS e FORCE INDEX (`lane`)
                        WHERE e.`message_key` = d.`message_key` AND e.`place` = 'live' AND e.`id` > d.`last`
                            AND e.`id` < v_mark AND e.`is_clear`
                        ORDER BY e.`id` LIMIT 1), v_mark - 1) INTO v_reach;
                    SELECT CONCAT(LEFT(v_near, CHAR_LENGTH(v_near) - 1), COALESCE(CONCAT(',', GROUP_CONCAT(f.`id`)), ''), ']')
                    INTO v_near
                    FROM (
                        (SELECT n.`id` FROM `pillarbox_outbox_lane` AS n FORCE INDEX (`lane`)
                        WHERE n.`message_key` = d.`message_key` AND n.`place` = 'live' AND n.`id` > d.`last`
                            AND n.`id` <= v_reach ORDER BY n.`id` LIMIT 100000)
                        UNION
                        (SELECT n.`id` FROM `pillarbox_outbox_lane` AS n FORCE INDEX (`lane`)
                        STRAIGHT_JOIN `pillarbox_outbox` AS x FORCE INDEX (PRIMARY) ON x.`id` = n.`id`
                        WHERE n.`message_key` = d.`message_key` AND n.`place` = 'live' AND n.`id` > d.`last`
                            AND n.`id` <= v_reach AND x.`locked_until` > p_now LIMIT 1)
                    ) AS f;
                END IF;
            END FOR;
        END IF; */
    END IF;
    IF v_near IS NOT NULL THEN
        SELECT COALESCE(JSON_ARRAYAGG(w.`id`), '[]') INTO v_live
        FROM (
            SELECT l.`id` FROM JSON_TABLE(v_near, '$[*]' COLUMNS (`id` BIGINT PATH '$')) AS j
            STRAIGHT_JOIN `pillarbox_outbox` AS l FORCE INDEX (PRIMARY) ON l.`id` = j.`id`
            WHERE l.`owner_token` IS NULL OR l.`locked_until` <= p_now
            LIMIT 1000000 FOR UPDATE SKIP LOCKED
        ) AS w;
        SELECT COALESCE(JSON_ARRAYAGG(w.`id`), '[]') INTO v_waiting
        FROM (
            SELECT s.`id` FROM JSON_TABLE(v_near, '$[*]' COLUMNS (`id` BIGINT PATH '$')) AS j
            STRAIGHT_JOIN `pillarbox_outbox_shelf` AS s FORCE INDEX (PRIMARY) ON s.`id` = j.`id`
            LIMIT 1000000 FOR UPDATE SKIP LOCKED
        ) AS w;
        IF JSON_LENGTH(v_live) + JSON_LENGTH(v_waiting) < JSON_LENGTH(v_near) THEN
            -- One that is in neither table any more is nobody's.
            SELECT JSON_ARRAYAGG(j.`id`) INTO p_ids
            FROM JSON_TABLE(v_rows, '$[*]' COLUMNS (`id` BIGINT PATH '$')) AS j
            LEFT JOIN `pillarbox_outbox` AS l FORCE INDEX (PRIMARY) ON l.`id` = j.`id`
            LEFT JOIN `pillarbox_outbox_shelf` AS s FORCE INDEX (PRIMARY) ON s.`id` = j.`id`
            WHERE IF(v_in_sequence, '', COALESCE(l.`message_key`, s.`message_key`)) IS NULL
                OR IF(v_in_sequence, '', COALESCE(l.`message_key`, s.`message_key`)) NOT IN (
                    SELECT IF(v_in_sequence, '', COALESCE(o.`message_key`, w.`message_key`))
                    FROM JSON_TABLE(v_near, '$[*]' COLUMNS (`id` BIGINT PATH '$')) AS n
                    LEFT JOIN `pillarbox_outbox` AS o FORCE INDEX (PRIMARY) ON o.`id` = n.`id`
                    LEFT JOIN `pillarbox_outbox_shelf` AS w FORCE INDEX (PRIMARY)
                        ON w.`id` = n.`id` AND w.`state` = 'pending'
                    WHERE COALESCE(o.`id`, w.`id`) IS NOT NULL
                        AND n.`id` NOT IN (
                            SELECT i.`id` FROM JSON_TABLE(v_live, '$[*]' COLUMNS (`id` BIGINT PATH '$')) AS i)
                        AND n.`id` NOT IN (
                            SELECT i.`id` FROM JSON_TABLE(v_waiting, '$[*]' COLUMNS (`id` BIGINT PATH '$')) AS i)
                );
        END IF;
        -- A lease that ran out can still be renewed.
        /*M!100600 IF v_deep > 0 AND p_last > 0 AND p_ids IS NOT NULL THEN
            SELECT CONCAT('[', GROUP_CONCAT(j.`id`), ']') INTO v_next
            FROM JSON_TABLE(v_next, '$[*]' COLUMNS (`id` BIGINT PATH '$')) AS j
            STRAIGHT_JOIN `pillarbox_outbox` AS x FORCE INDEX (PRIMARY) ON x.`id` = j.`id`
            WHERE x.`message_key` IN (
                SELECT n.`message_key` FROM JSON_TABLE(p_ids, '$[*]' COLUMNS (`id` BIGINT PATH '$')) AS i
                STRAIGHT_JOIN `pillarbox_outbox_lane` AS n FORCE INDEX (PRIMARY) ON n.`id` = i.`id`)
                AND (
                    SELECT n.`id` FROM `pillarbox_outbox_lane` AS n FORCE INDEX (`lane`)
                    STRAIGHT_JOIN `pillarbox_outbox` AS f FORCE INDEX (PRIMARY) ON f.`id` = n.`id`
                    WHERE n.`message_key` = x.`message_key` AND n.`place` = 'live' AND n.`id` >= x.`id` AND n.`id` < v_mark
                        AND f.`owner_token` IS NOT NULL LIMIT 1
                ) IS NULL;
            UPDATE JSON_TABLE(COALESCE(v_next, '[]'), '$[*]' COLUMNS (`id` BIGINT PATH '$')) AS j
            STRAIGHT_JOIN `pillarbox_outbox_lane` AS n FORCE INDEX (PRIMARY) ON n.`id` = j.`id`
            SET n.`is_clear` = TRUE;
        END IF; */
    END IF;
END$$
DELIMITER ;

-- Removes `p_count` acknowledged rows of one claim that stand beside each other, from `p_first` on. They are walked through, which
-- takes half the work of a search for each. The limits stop the walk at the last of them: the row behind it may be one that
-- somebody has inserted and not yet committed, and a walk that looked at it would wait. So would one that found too few: it
-- skips what is locked, and then each row is searched for. Answers NULL when all were there, else those that were. Only rows
-- with a key are looked for in the lane, and those are ours.
DROP PROCEDURE IF EXISTS `pillarbox_outbox_settle_stretch`;
DELIMITER $$
CREATE PROCEDURE `pillarbox_outbox_settle_stretch`(p_owner BINARY(16), p_fence BIGINT, p_first BIGINT, p_count INT)
    SQL SECURITY INVOKER
BEGIN
    DECLARE v_last BIGINT DEFAULT p_first + p_count - 1;
    DECLARE v_found INT;
    DECLARE v_keyed INT;
    DECLARE v_ids LONGTEXT CHARACTER SET utf8mb4;
    SELECT COUNT(*), SUM(s.`is_keyed`) INTO v_found, v_keyed
    FROM (
        SELECT `message_key` IS NOT NULL AS `is_keyed` FROM `pillarbox_outbox` FORCE INDEX (PRIMARY)
        WHERE `id` BETWEEN p_first AND v_last AND `owner_token` = p_owner AND `fence` = p_fence
        ORDER BY `id` LIMIT p_count FOR UPDATE SKIP LOCKED
    ) AS s;
    IF v_found = p_count THEN
        IF v_keyed > 0 THEN
            SET SESSION group_concat_max_len = GREATEST(@@SESSION.group_concat_max_len, 4194304);
            SELECT JSON_ARRAYAGG(`id`) INTO v_ids FROM `pillarbox_outbox` FORCE INDEX (PRIMARY)
            WHERE `id` BETWEEN p_first AND v_last AND `owner_token` = p_owner AND `fence` = p_fence
                AND `message_key` IS NOT NULL;
            DELETE n FROM JSON_TABLE(v_ids, '$[*]' COLUMNS (`id` BIGINT PATH '$')) AS j
            STRAIGHT_JOIN `pillarbox_outbox_lane` AS n FORCE INDEX (PRIMARY) ON n.`id` = j.`id`;
        END IF;
        DELETE FROM `pillarbox_outbox`
        WHERE `id` BETWEEN p_first AND v_last AND `owner_token` = p_owner AND `fence` = p_fence
        ORDER BY `id` LIMIT p_count;
        SELECT NULL AS `stretch`;
    ELSE
        SET SESSION group_concat_max_len = GREATEST(@@SESSION.group_concat_max_len, 4194304);
        SELECT JSON_ARRAYAGG(`id`) INTO v_ids FROM `pillarbox_outbox` FORCE INDEX (PRIMARY)
        WHERE `id` BETWEEN p_first AND v_last AND `owner_token` = p_owner AND `fence` = p_fence;
        SELECT JSON_ARRAYAGG(s.`id`) INTO v_ids
        FROM (
            SELECT l.`id` FROM JSON_TABLE(COALESCE(v_ids, '[]'), '$[*]' COLUMNS (`id` BIGINT PATH '$')) AS j
            STRAIGHT_JOIN `pillarbox_outbox` AS l FORCE INDEX (PRIMARY) ON l.`id` = j.`id`
            WHERE l.`owner_token` = p_owner AND l.`fence` = p_fence
            -- Without a limit the server may merge this into the outer statement, which locks nothing.
            LIMIT p_count FOR UPDATE
        ) AS s;
        DELETE l, n FROM JSON_TABLE(COALESCE(v_ids, '[]'), '$[*]' COLUMNS (`id` BIGINT PATH '$')) AS j
        STRAIGHT_JOIN `pillarbox_outbox` AS l FORCE INDEX (PRIMARY) ON l.`id` = j.`id`
        LEFT JOIN `pillarbox_outbox_lane` AS n FORCE INDEX (PRIMARY)
            ON n.`id` = IF(l.`message_key` IS NULL, NULL, l.`id`)
        WHERE l.`owner_token` = p_owner AND l.`fence` = p_fence;
        SELECT COALESCE(v_ids, '[]') AS `stretch`;
    END IF;
END$$
DELIMITER ;

-- Leases up to `p_limit` messages. Rows that waited come from the shelf; the others are taken in the order of the primary
-- key, without a sort and without waiting for anybody. A message with a key that is not in the lane is put there instead, for the
-- next claim: the others have to see what is held. `p_order`: 1, dead messages hold back the later ones of their key;
-- 2, all messages as one key; 4, there may be messages with a key, which else is looked up; 8, answer when some were met all
-- the same, and when some were put into the lane. Else a variable of the session tells how many more the next
-- claim may bring. `p_served` has a byte for each
-- partition, 1 where it is served: of messages with a key only those of served ones are taken, or all when it is NULL. A key
-- without a hash is partition 0's. `p_left_out` are topics that stay where they are, and with them what comes behind in their
-- keys, each between two bytes of zero, or NULL for none. Those that waited are moved over all the same: on the shelf nothing
-- would keep a claim from walking over them each time.
DROP PROCEDURE IF EXISTS `pillarbox_outbox_claim_rows`;
DELIMITER $$
CREATE PROCEDURE `pillarbox_outbox_claim_rows`(
    p_owner BINARY(16), p_fence BIGINT, p_lease BIGINT, p_limit INT, p_floor BIGINT, p_lost_leases_max INT, p_order INT,
    p_served MEDIUMBLOB, p_left_out MEDIUMBLOB)
    SQL SECURITY INVOKER
BEGIN
    DECLARE v_now DATETIME(6) DEFAULT UTC_TIMESTAMP(6);
    DECLARE v_until DATETIME(6) DEFAULT v_now + INTERVAL p_lease MICROSECOND;
    DECLARE v_end BIGINT DEFAULT 9223372036854775807;
    DECLARE v_in_sequence BOOLEAN DEFAULT p_order & 2;
    DECLARE v_dead_hold BOOLEAN DEFAULT p_order & 1;
    DECLARE v_partitions INT DEFAULT LENGTH(p_served);
    DECLARE v_floor BIGINT DEFAULT IF(v_in_sequence, 0, p_floor);
    DECLARE v_stop BIGINT DEFAULT v_end;
    DECLARE v_ids LONGTEXT CHARACTER SET utf8mb4;
    DECLARE v_run LONGTEXT CHARACTER SET utf8mb4;
    DECLARE v_seen LONGTEXT CHARACTER SET utf8mb4 DEFAULT '[]';
    DECLARE v_due BOOLEAN;
    DECLARE v_keys BOOLEAN;
    DECLARE v_pending, v_dead BOOLEAN DEFAULT TRUE;
    DECLARE v_keyed INT;
    DECLARE v_loose INT DEFAULT 0;
    DECLARE v_top BIGINT;
    DECLARE v_waiting INT DEFAULT 0;
    DECLARE v_room INT DEFAULT p_limit;
    DECLARE v_open INT DEFAULT p_limit;
    DECLARE v_found INT;
    DECLARE v_taken INT DEFAULT 0;
    DECLARE v_first BIGINT;
    DECLARE v_last BIGINT DEFAULT v_floor;
    DECLARE v_rounds INT DEFAULT 0;
    SELECT EXISTS (SELECT 1 FROM `pillarbox_outbox_shelf` WHERE `state` = 'pending' AND `wake_at` <= v_now),
        p_order & 6 OR EXISTS (SELECT 1 FROM `pillarbox_outbox_lane` FORCE INDEX (`lane`) WHERE `place` = 'live')
    INTO v_due, v_keys;
    -- A hint for the scan; the look at locked rows asks again.
    IF v_keys THEN
        SELECT EXISTS (SELECT 1 FROM `pillarbox_outbox_shelf` FORCE INDEX (`state`) WHERE `state` = 'pending'),
            v_dead_hold AND EXISTS (SELECT 1 FROM `pillarbox_outbox_shelf` FORCE INDEX (`state`) WHERE `state` = 'dead')
        INTO v_pending, v_dead;
    END IF;
    IF v_due OR v_keys THEN
        SET SESSION group_concat_max_len = GREATEST(@@SESSION.group_concat_max_len, 4194304);
    END IF;
    IF v_due AND v_in_sequence THEN
        SELECT LEAST(
            COALESCE((SELECT IF(f.`locked_until` > v_now, 0, f.`id`) FROM `pillarbox_outbox` AS f
                ORDER BY f.`id` LIMIT 1), v_end),
            COALESCE((SELECT MIN(h.`id`) + 1 FROM `pillarbox_outbox_shelf` AS h FORCE INDEX (`state`)
                WHERE h.`state` = 'pending' AND h.`settled_by` IS NOT NULL), v_end),
            IF(v_dead_hold, COALESCE((SELECT MIN(d.`id`) FROM `pillarbox_outbox_shelf` AS d FORCE INDEX (`state`)
                WHERE d.`state` = 'dead'), v_end), v_end)
        ) INTO v_stop;
    END IF;
    -- The scans look at the first row of a key only; runs are checked when they are locked. If some had to be left, a scan
    -- goes on behind them, so that one key does not hold up the others.
    WHILE v_due AND v_waiting < p_limit AND v_rounds < 8 DO
        SELECT JSON_ARRAYAGG(w.`id`), COUNT(*), COUNT(w.`message_key`),
            MAX(IF(w.`message_key` IS NOT NULL OR v_in_sequence, w.`id`, NULL))
        INTO v_run, v_found, v_keyed, v_top
        FROM (
            SELECT s.`id`, s.`message_key` FROM `pillarbox_outbox_shelf` AS s
            WHERE s.`state` = 'pending' AND s.`wake_at` <= v_now AND s.`due_at` <= v_now
                AND (s.`expires_at` IS NULL OR s.`expires_at` > v_now) AND s.`id` < v_stop
                AND s.`id` NOT IN (SELECT i.`id` FROM JSON_TABLE(v_seen, '$[*]' COLUMNS (`id` BIGINT PATH '$')) AS i)
                AND (s.`message_key` IS NULL OR v_in_sequence OR (
                    (p_served IS NULL OR SUBSTR(p_served, ABS(COALESCE(s.`key_hash`, 0) % v_partitions) + 1, 1) = x'01')
                    AND COALESCE((
                        SELECT f.`id` > s.`id` AND (f.`locked_until` IS NULL OR f.`locked_until` <= v_now)
                        FROM `pillarbox_outbox_lane` AS n FORCE INDEX (`lane`)
                        STRAIGHT_JOIN `pillarbox_outbox` AS f FORCE INDEX (PRIMARY) ON f.`id` = n.`id`
                        WHERE n.`message_key` = s.`message_key` AND n.`place` = 'live' ORDER BY n.`id` LIMIT 1
                    ), TRUE)
                    AND COALESCE((
                        SELECT n.`id` FROM `pillarbox_outbox_lane` AS n FORCE INDEX (`lane`)
                        STRAIGHT_JOIN `pillarbox_outbox_shelf` AS h FORCE INDEX (PRIMARY) ON h.`id` = n.`id`
                        WHERE n.`message_key` = s.`message_key` AND n.`place` = 'waiting'
                            AND h.`state` = 'pending' AND h.`settled_by` IS NOT NULL
                        ORDER BY n.`id` LIMIT 1
                    ) >= s.`id`, TRUE)
                    AND (NOT v_dead_hold OR COALESCE((
                        SELECT n.`id` FROM `pillarbox_outbox_lane` AS n FORCE INDEX (`lane`)
                        STRAIGHT_JOIN `pillarbox_outbox_shelf` AS d FORCE INDEX (PRIMARY) ON d.`id` = n.`id`
                        WHERE n.`message_key` = s.`message_key` AND n.`place` = 'dead' AND d.`state` = 'dead'
                        ORDER BY n.`id` LIMIT 1
                    ) > s.`id`, TRUE))))
            ORDER BY s.`wake_at`, s.`settled_at`, s.`id` LIMIT v_open FOR UPDATE SKIP LOCKED
        ) AS w;
        SET v_ids = JSON_MERGE_PRESERVE(COALESCE(v_ids, '[]'), COALESCE(v_run, '[]'));
        SET v_seen = JSON_MERGE_PRESERVE(v_seen, COALESCE(v_run, '[]'));
        IF v_found > 0 AND (v_keyed > 0 OR v_in_sequence) THEN
            CALL `pillarbox_outbox_claim_runs`(v_now, v_floor, 0, v_top, p_order, v_ids);
        END IF;
        SET v_waiting = COALESCE(JSON_LENGTH(v_ids), 0);
        SET v_rounds = IF(v_found < v_open, 8, v_rounds + 1);
        SET v_open = p_limit - v_waiting;
    END WHILE;
    SET v_room = p_limit - v_waiting;
    -- They are in the hot table before the others are looked for: their keys are held.
    IF v_waiting > 0 THEN
        INSERT INTO `pillarbox_outbox`
            (`id`, `message_id`, `topic`, `payload`, `created_at`, `due_at`, `expires_at`, `attempts`,
            `lost_lease_count`, `priority`, `message_type`, `aggregate_type`, `aggregate_id`, `tenant_id`,
            `message_key`, `key_hash`, `correlation_id`, `causation_id`, `content_type`, `headers`, `occurred_at`, `last_error`,
            `owner_token`, `locked_until`, `fence`)
        SELECT s.`id`, s.`message_id`, s.`topic`, s.`payload`, s.`created_at`, s.`due_at`, s.`expires_at`,
            LEAST(s.`attempts`, 2147483646) + 1, s.`lost_lease_count`, s.`priority`, s.`message_type`,
            s.`aggregate_type`, s.`aggregate_id`, s.`tenant_id`, s.`message_key`, s.`key_hash`, s.`correlation_id`,
            s.`causation_id`, s.`content_type`, s.`headers`, s.`occurred_at`, s.`last_error`, p_owner, v_until,
            p_fence
        FROM JSON_TABLE(v_ids, '$[*]' COLUMNS (`id` BIGINT PATH '$')) AS j
        STRAIGHT_JOIN `pillarbox_outbox_shelf` AS s FORCE INDEX (PRIMARY) ON s.`id` = j.`id`
        ON DUPLICATE KEY UPDATE `pillarbox_outbox`.`id` = `pillarbox_outbox`.`id`;
        INSERT INTO `pillarbox_outbox_lane` (`id`, `message_key`, `place`)
        SELECT s.`id`, s.`message_key`, 'live'
        FROM JSON_TABLE(v_ids, '$[*]' COLUMNS (`id` BIGINT PATH '$')) AS j
        STRAIGHT_JOIN `pillarbox_outbox_shelf` AS s FORCE INDEX (PRIMARY) ON s.`id` = j.`id`
        WHERE s.`message_key` IS NOT NULL
        ON DUPLICATE KEY UPDATE `message_key` = VALUES(`message_key`), `place` = VALUES(`place`), `is_clear` = FALSE;
        DELETE s FROM JSON_TABLE(v_ids, '$[*]' COLUMNS (`id` BIGINT PATH '$')) AS j
        STRAIGHT_JOIN `pillarbox_outbox_shelf` AS s FORCE INDEX (PRIMARY) ON s.`id` = j.`id`;
        SELECT l.`id`, l.`message_id`, l.`topic`, l.`payload`, l.`created_at`, l.`due_at`, l.`expires_at`,
            l.`attempts`, l.`lost_lease_count`, l.`priority`, l.`message_type`, l.`aggregate_type`,
            l.`aggregate_id`, l.`tenant_id`, l.`message_key`, l.`correlation_id`, l.`causation_id`,
            l.`content_type`, l.`headers`, l.`occurred_at`, l.`last_error`, l.`owner_token`, l.`locked_until`,
            l.`fence`, 1 AS `waited`
        FROM JSON_TABLE(v_ids, '$[*]' COLUMNS (`id` BIGINT PATH '$')) AS j
        STRAIGHT_JOIN `pillarbox_outbox` AS l FORCE INDEX (PRIMARY) ON l.`id` = j.`id`
        WHERE l.`fence` = p_fence AND l.`owner_token` = p_owner
        ORDER BY l.`id`;
    END IF;
    IF v_waiting = 0 AND NOT v_keys THEN
        SELECT COUNT(*), MIN(c.`id`), MAX(c.`id`), COALESCE(SUM(c.`is_keyed`), 0) > 0
        INTO v_taken, v_first, v_last, v_keys
        FROM (
            SELECT `id`, `message_key` IS NOT NULL AS `is_keyed` FROM `pillarbox_outbox` FORCE INDEX (PRIMARY)
            WHERE `id` > p_floor
                AND (p_left_out IS NULL OR LOCATE(CONCAT(x'00', CAST(`topic` AS BINARY), x'00'), p_left_out) = 0)
                AND (`owner_token` IS NULL OR (`locked_until` <= v_now AND `lost_lease_count` < p_lost_leases_max))
                AND (`due_at` IS NULL OR `due_at` <= v_now) AND (`expires_at` IS NULL OR `expires_at` > v_now)
            ORDER BY `id` LIMIT v_room FOR UPDATE SKIP LOCKED
        ) AS c;
        IF v_keys THEN
            SET SESSION group_concat_max_len = GREATEST(@@SESSION.group_concat_max_len, 4194304);
            SET v_taken = 0, v_last = v_floor;
            IF p_order & 8 THEN
                SELECT TRUE AS `met`;
            END IF;
        END IF;
    END IF;
    IF v_waiting = 0 AND NOT v_keys THEN
        IF v_taken > 0 AND v_taken = v_last - v_first + 1 THEN
            -- They stand beside each other, as most do, and are all locked: nothing need be joined. The limit stops the walk at the
            -- last of them: the row behind it is somebody else's to lock. Assignments are made from the left to the right, so
            -- what was there is read first.
            UPDATE `pillarbox_outbox` FORCE INDEX (PRIMARY)
            SET `lost_lease_count` = LEAST(`lost_lease_count`, 2147483646) + (`owner_token` IS NOT NULL),
                `attempts` = LEAST(`attempts`, 2147483646) + 1,
                `owner_token` = p_owner, `fence` = p_fence, `locked_until` = v_until
            WHERE `id` BETWEEN v_first AND v_last ORDER BY `id` LIMIT v_taken;
        ELSEIF v_taken > 0 THEN
            -- The limit stands in a derived table that is materialised once, joined first, so that never more rows change.
            UPDATE (
                SELECT `id`, `attempts`, `lost_lease_count`, `owner_token` IS NOT NULL AS `was_leased`
                FROM `pillarbox_outbox` FORCE INDEX (PRIMARY)
                WHERE `id` BETWEEN v_first AND v_last AND `message_key` IS NULL
                    AND (p_left_out IS NULL OR LOCATE(CONCAT(x'00', CAST(`topic` AS BINARY), x'00'), p_left_out) = 0)
                    AND (`owner_token` IS NULL OR (`locked_until` <= v_now AND `lost_lease_count` < p_lost_leases_max))
                    AND (`due_at` IS NULL OR `due_at` <= v_now) AND (`expires_at` IS NULL OR `expires_at` > v_now)
                ORDER BY `id` LIMIT v_room FOR UPDATE SKIP LOCKED
            ) AS c
            STRAIGHT_JOIN `pillarbox_outbox` AS l FORCE INDEX (PRIMARY) ON l.`id` = c.`id`
            SET l.`owner_token` = p_owner, l.`fence` = p_fence, l.`locked_until` = v_until,
                l.`attempts` = LEAST(c.`attempts`, 2147483646) + 1,
                l.`lost_lease_count` = LEAST(c.`lost_lease_count`, 2147483646) + c.`was_leased`;
            SET v_taken = ROW_COUNT();
        END IF;
        IF v_taken > 0 THEN
            -- Our rows are found again by the fence, in the range that was just walked.
            SELECT l.`id`, l.`message_id`, l.`topic`, l.`payload`, l.`created_at`, l.`due_at`, l.`expires_at`,
                l.`attempts`, l.`lost_lease_count`, l.`priority`, l.`message_type`, l.`aggregate_type`,
                l.`aggregate_id`, l.`tenant_id`, l.`message_key`, l.`correlation_id`, l.`causation_id`,
                l.`content_type`, l.`headers`, l.`occurred_at`, l.`last_error`, l.`owner_token`, l.`locked_until`,
                l.`fence`, 0 AS `waited`
            FROM `pillarbox_outbox` AS l FORCE INDEX (PRIMARY)
            WHERE l.`id` BETWEEN v_first AND v_last AND l.`fence` = p_fence AND l.`owner_token` = p_owner
            ORDER BY l.`id` LIMIT v_taken;
        END IF;
        SET v_room = 0;
    ELSEIF v_waiting > 0 AND v_in_sequence THEN
        SET v_room = 0;
    END IF;
    SET v_ids = NULL;
    SET v_open = v_room;
    SET v_rounds = 0;
    WHILE v_taken < v_room AND v_rounds < 8 DO
        SELECT CONCAT('[', GROUP_CONCAT(IF(w.`is_loose`, NULL, w.`id`)), ']'), COUNT(*), COUNT(w.`message_key`),
            COALESCE(MAX(w.`id`), v_last), v_loose + COALESCE(SUM(w.`is_loose`), 0),
            MAX(IF(w.`message_key` IS NOT NULL OR v_in_sequence, w.`id`, NULL))
        INTO v_run, v_found, v_keyed, v_last, v_loose, v_top
        FROM (
            SELECT c.`id`, c.`message_key`, c.`message_key` IS NOT NULL
                AND (SELECT p.`id` FROM `pillarbox_outbox_lane` AS p WHERE p.`id` = c.`id`) IS NULL AS `is_loose`
            FROM `pillarbox_outbox` AS c FORCE INDEX (PRIMARY)
            WHERE c.`id` > v_last
                AND (c.`owner_token` IS NULL OR (c.`locked_until` <= v_now AND c.`lost_lease_count` < p_lost_leases_max))
                AND (c.`due_at` IS NULL OR c.`due_at` <= v_now) AND (c.`expires_at` IS NULL OR c.`expires_at` > v_now)
                AND (p_left_out IS NULL OR LOCATE(CONCAT(x'00', CAST(c.`topic` AS BINARY), x'00'), p_left_out) = 0)
                AND (c.`message_key` IS NULL OR v_in_sequence OR (
                    (p_served IS NULL OR SUBSTR(p_served, ABS(COALESCE(c.`key_hash`, 0) % v_partitions) + 1, 1) = x'01')
                    AND COALESCE((
                        SELECT f.`id` > v_floor AND (f.`owner_token` IS NULL
                                OR (f.`locked_until` <= v_now AND f.`lost_lease_count` < p_lost_leases_max))
                            AND COALESCE(f.`due_at` <= v_now, TRUE) AND COALESCE(f.`expires_at` > v_now, TRUE)
                            AND (p_served IS NULL OR SUBSTR(p_served, ABS(COALESCE(f.`key_hash`, 0) % v_partitions) + 1, 1) = x'01')
                            AND (p_left_out IS NULL OR LOCATE(CONCAT(x'00', CAST(f.`topic` AS BINARY), x'00'), p_left_out) = 0)
                        FROM `pillarbox_outbox_lane` AS n FORCE INDEX (`lane`)
                        STRAIGHT_JOIN `pillarbox_outbox` AS f FORCE INDEX (PRIMARY) ON f.`id` = n.`id`
                        WHERE n.`message_key` = c.`message_key` AND n.`place` = 'live' ORDER BY n.`id` LIMIT 1
                    ), TRUE)
                    AND (NOT v_pending OR COALESCE((
                        SELECT n.`id` FROM `pillarbox_outbox_lane` AS n FORCE INDEX (`lane`)
                        STRAIGHT_JOIN `pillarbox_outbox_shelf` AS h FORCE INDEX (PRIMARY) ON h.`id` = n.`id`
                        WHERE n.`message_key` = c.`message_key` AND n.`place` = 'waiting'
                            AND h.`state` = 'pending' AND h.`settled_by` IS NOT NULL
                        ORDER BY n.`id` LIMIT 1
                    ) > c.`id`, TRUE))
                    AND (NOT v_dead OR COALESCE((
                        SELECT n.`id` FROM `pillarbox_outbox_lane` AS n FORCE INDEX (`lane`)
                        STRAIGHT_JOIN `pillarbox_outbox_shelf` AS d FORCE INDEX (PRIMARY) ON d.`id` = n.`id`
                        WHERE n.`message_key` = c.`message_key` AND n.`place` = 'dead' AND d.`state` = 'dead'
                        ORDER BY n.`id` LIMIT 1
                    ) > c.`id`, TRUE))))
            ORDER BY c.`id` LIMIT v_open FOR UPDATE SKIP LOCKED
        ) AS w;
        SET v_ids = JSON_MERGE_PRESERVE(COALESCE(v_ids, '[]'), COALESCE(v_run, '[]'));
        IF v_found > 0 AND (v_keyed > 0 OR v_in_sequence) THEN
            CALL `pillarbox_outbox_claim_runs`(v_now, v_floor, v_last, v_top, p_order, v_ids);
        END IF;
        SET v_taken = COALESCE(JSON_LENGTH(v_ids), 0);
        SET v_rounds = IF(v_found < v_open OR v_in_sequence OR v_loose > 0, 8, v_rounds + 1);
        SET v_open = v_room - v_taken;
    END WHILE;
    IF v_room > 0 AND v_taken > 0 THEN
        -- What is in somebody's hands is not clear: it may come back before the later ones do.
        /*M!100600 UPDATE JSON_TABLE(v_ids, '$[*]' COLUMNS (`id` BIGINT PATH '$')) AS j
        STRAIGHT_JOIN `pillarbox_outbox_lane` AS n FORCE INDEX (PRIMARY) ON n.`id` = j.`id`
        SET n.`is_clear` = FALSE WHERE n.`is_clear`; */
        SELECT MIN(j.`id`), MAX(j.`id`) INTO v_first, v_last
        FROM JSON_TABLE(v_ids, '$[*]' COLUMNS (`id` BIGINT PATH '$')) AS j;
        IF v_taken = v_last - v_first + 1 THEN
            UPDATE `pillarbox_outbox` FORCE INDEX (PRIMARY)
            SET `lost_lease_count` = LEAST(`lost_lease_count`, 2147483646) + (`owner_token` IS NOT NULL),
                `attempts` = LEAST(`attempts`, 2147483646) + 1,
                `owner_token` = p_owner, `fence` = p_fence, `locked_until` = v_until
            WHERE `id` BETWEEN v_first AND v_last ORDER BY `id` LIMIT v_taken;
        ELSE
            UPDATE (
                SELECT o.`id`, o.`attempts`, o.`lost_lease_count`, o.`owner_token` IS NOT NULL AS `was_leased`
                FROM JSON_TABLE(v_ids, '$[*]' COLUMNS (`id` BIGINT PATH '$')) AS j
                STRAIGHT_JOIN `pillarbox_outbox` AS o FORCE INDEX (PRIMARY) ON o.`id` = j.`id`
                LIMIT 1000000
            ) AS c
            STRAIGHT_JOIN `pillarbox_outbox` AS l FORCE INDEX (PRIMARY) ON l.`id` = c.`id`
            SET l.`owner_token` = p_owner, l.`fence` = p_fence, l.`locked_until` = v_until,
                l.`attempts` = LEAST(c.`attempts`, 2147483646) + 1,
                l.`lost_lease_count` = LEAST(c.`lost_lease_count`, 2147483646) + c.`was_leased`;
        END IF;
        SELECT l.`id`, l.`message_id`, l.`topic`, l.`payload`, l.`created_at`, l.`due_at`, l.`expires_at`,
            l.`attempts`, l.`lost_lease_count`, l.`priority`, l.`message_type`, l.`aggregate_type`,
            l.`aggregate_id`, l.`tenant_id`, l.`message_key`, l.`correlation_id`, l.`causation_id`,
            l.`content_type`, l.`headers`, l.`occurred_at`, l.`last_error`, l.`owner_token`, l.`locked_until`,
            l.`fence`, 0 AS `waited`
        FROM JSON_TABLE(v_ids, '$[*]' COLUMNS (`id` BIGINT PATH '$')) AS j
        STRAIGHT_JOIN `pillarbox_outbox` AS l FORCE INDEX (PRIMARY) ON l.`id` = j.`id`
        ORDER BY l.`id`;
    END IF;
    IF v_loose > 0 THEN
        -- All that came by plain INSERTs, and not only what could have been taken: each has its place from here on.
        SELECT JSON_ARRAYAGG(w.`id`) INTO v_run
        FROM (
            SELECT c.`id` FROM `pillarbox_outbox` AS c FORCE INDEX (PRIMARY)
            WHERE c.`id` > v_floor AND c.`message_key` IS NOT NULL
                AND (SELECT p.`id` FROM `pillarbox_outbox_lane` AS p WHERE p.`id` = c.`id`) IS NULL
            ORDER BY c.`id` LIMIT 10000 FOR UPDATE SKIP LOCKED
        ) AS w;
        INSERT INTO `pillarbox_outbox_lane` (`id`, `message_key`, `place`)
        SELECT c.`id`, c.`message_key`, 'live'
        FROM JSON_TABLE(COALESCE(v_run, '[]'), '$[*]' COLUMNS (`id` BIGINT PATH '$')) AS j
        STRAIGHT_JOIN `pillarbox_outbox` AS c FORCE INDEX (PRIMARY) ON c.`id` = j.`id`
        ON DUPLICATE KEY UPDATE `message_key` = VALUES(`message_key`), `place` = VALUES(`place`), `is_clear` = FALSE;
        SET @pillarbox_outbox_left = p_limit - v_waiting - v_taken;
        IF p_order & 8 THEN
            SELECT v_loose AS `registered`;
        END IF;
    END IF;
END$$
DELIMITER ;

-- Applies verdicts, a JSON array of [id, fence, verdict, delay in microseconds, reason], sorted by id. First all rows that are
-- still under the named claim are locked and answered; then each moves once. A row whose message is on the shelf already
-- (stored twice under an old snapshot) just goes. What moved leaves its old place in the lane before the rows go, with which
-- all goes that is still there.
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
        `message_key`, `key_hash`, `correlation_id`, `causation_id`, `content_type`, `headers`, `occurred_at`, `last_error`,
        `state`, `wake_at`, `settled_at`, `settled_by`, `is_receipt`)
    SELECT
        l.`id`, l.`message_id`, l.`topic`, IF(j.`verdict` = 'receipt', '', l.`payload`), l.`created_at`,
        IF(j.`verdict` IN ('abandon', 'release'), v_now + INTERVAL j.`delay` MICROSECOND, l.`due_at`),
        l.`expires_at`, IF(j.`verdict` = 'release', GREATEST(l.`attempts` - 1, 0), l.`attempts`),
        l.`lost_lease_count`, l.`priority`, l.`message_type`,
        IF(j.`verdict` = 'receipt', NULL, l.`aggregate_type`), IF(j.`verdict` = 'receipt', NULL, l.`aggregate_id`),
        IF(j.`verdict` = 'receipt', NULL, l.`tenant_id`), IF(j.`verdict` = 'receipt', NULL, l.`message_key`),
        IF(j.`verdict` = 'receipt', NULL, l.`key_hash`),
        IF(j.`verdict` = 'receipt', NULL, l.`correlation_id`), IF(j.`verdict` = 'receipt', NULL, l.`causation_id`),
        IF(j.`verdict` = 'receipt', NULL, l.`content_type`), IF(j.`verdict` = 'receipt', NULL, l.`headers`),
        IF(j.`verdict` = 'receipt', NULL, l.`occurred_at`),
        IF(j.`verdict` = 'receipt', NULL, COALESCE(j.`reason`, l.`last_error`)),
        CASE WHEN j.`verdict` IN ('abandon', 'release') THEN 'pending' WHEN j.`verdict` = 'fail' THEN 'dead' ELSE 'done' END,
        IF(j.`verdict` IN ('abandon', 'release'), LEAST(v_now + INTERVAL j.`delay` MICROSECOND, COALESCE(l.`expires_at`, v_never)), NULL),
        IF(j.`verdict` IN ('abandon', 'release'), NULL, v_now),
        p_owner, j.`verdict` = 'receipt'
    FROM JSON_TABLE(p_verdicts, '$[*]' COLUMNS (
        `id` BIGINT PATH '$[0]', `fence` BIGINT PATH '$[1]', `verdict` VARCHAR(8) CHARACTER SET utf8mb4 PATH '$[2]',
        `delay` BIGINT PATH '$[3]', `reason` TEXT CHARACTER SET utf8mb4 PATH '$[4]')) AS j
    STRAIGHT_JOIN `pillarbox_outbox` AS l FORCE INDEX (PRIMARY) ON l.`id` = j.`id`
    WHERE l.`owner_token` = p_owner AND l.`fence` = j.`fence`
        AND (j.`verdict` IN ('receipt', 'keep', 'fail') OR j.`delay` > 0)
    ON DUPLICATE KEY UPDATE `pillarbox_outbox_shelf`.`id` = `pillarbox_outbox_shelf`.`id`;
    INSERT INTO `pillarbox_outbox_lane` (`id`, `message_key`, `place`)
    SELECT l.`id`, l.`message_key`, IF(j.`verdict` = 'fail', 'dead', 'waiting')
    FROM JSON_TABLE(p_verdicts, '$[*]' COLUMNS (
        `id` BIGINT PATH '$[0]', `fence` BIGINT PATH '$[1]', `verdict` VARCHAR(8) CHARACTER SET utf8mb4 PATH '$[2]',
        `delay` BIGINT PATH '$[3]')) AS j
    STRAIGHT_JOIN `pillarbox_outbox` AS l FORCE INDEX (PRIMARY) ON l.`id` = j.`id`
    STRAIGHT_JOIN `pillarbox_outbox_shelf` AS s FORCE INDEX (PRIMARY)
        ON s.`id` = IF(l.`message_key` IS NULL, NULL, l.`id`)
    WHERE l.`owner_token` = p_owner AND l.`fence` = j.`fence`
        AND (j.`verdict` = 'fail' OR (j.`verdict` IN ('abandon', 'release') AND j.`delay` > 0))
    ON DUPLICATE KEY UPDATE `message_key` = VALUES(`message_key`), `place` = VALUES(`place`), `is_clear` = FALSE;
    DELETE l, n
    FROM JSON_TABLE(p_verdicts, '$[*]' COLUMNS (
        `id` BIGINT PATH '$[0]', `fence` BIGINT PATH '$[1]', `verdict` VARCHAR(8) CHARACTER SET utf8mb4 PATH '$[2]',
        `delay` BIGINT PATH '$[3]')) AS j
    STRAIGHT_JOIN `pillarbox_outbox` AS l FORCE INDEX (PRIMARY) ON l.`id` = j.`id`
    LEFT JOIN `pillarbox_outbox_lane` AS n FORCE INDEX (PRIMARY)
        ON n.`id` = IF(l.`message_key` IS NULL, NULL, l.`id`) AND n.`place` = 'live'
    WHERE l.`owner_token` = p_owner AND l.`fence` = j.`fence`
        AND (j.`verdict` IN ('delete', 'receipt', 'keep', 'fail') OR j.`delay` > 0);
    UPDATE JSON_TABLE(p_verdicts, '$[*]' COLUMNS (
        `id` BIGINT PATH '$[0]', `fence` BIGINT PATH '$[1]', `verdict` VARCHAR(8) CHARACTER SET utf8mb4 PATH '$[2]',
        `delay` BIGINT PATH '$[3]', `reason` TEXT CHARACTER SET utf8mb4 PATH '$[4]')) AS j
    STRAIGHT_JOIN `pillarbox_outbox` AS l FORCE INDEX (PRIMARY) ON l.`id` = j.`id` AND l.`fence` = j.`fence`
    SET l.`attempts` = IF(j.`verdict` = 'release', GREATEST(l.`attempts` - 1, 0), l.`attempts`),
        l.`last_error` = COALESCE(j.`reason`, l.`last_error`),
        l.`due_at` = NULL, l.`locked_until` = NULL, l.`fence` = -1, l.`owner_token` = NULL
    WHERE l.`owner_token` = p_owner AND j.`verdict` IN ('abandon', 'release') AND j.`delay` = 0;
END$$
DELIMITER ;

-- Looks at one window. What needs a hand is found without locks, then locked by id, passing over what others work on, and
-- judged again: claims must not meet the locks of a walk through the whole window. `p_park` buries what is behind a dead
-- message of its key, also what became due there on the shelf. The fence -1 says that a row came back to its place. Messages with
-- a key that came by a plain INSERT are put into the lane.
DROP PROCEDURE IF EXISTS `pillarbox_outbox_reap_rows`;
DELIMITER $$
CREATE PROCEDURE `pillarbox_outbox_reap_rows`(p_after BIGINT, p_window INT, p_lost_leases_max INT, p_park BOOLEAN)
    SQL SECURITY INVOKER
BEGIN
    DECLARE v_now DATETIME(6) DEFAULT UTC_TIMESTAMP(6);
    DECLARE v_never DATETIME(6) DEFAULT '9999-12-31';
    DECLARE v_reason_expired VARCHAR(255) CHARACTER SET utf8mb4 DEFAULT 'expired: expires_at passed before it was handled';
    DECLARE v_reason_lost VARCHAR(255) CHARACTER SET utf8mb4
        DEFAULT 'lease lost too often: its workers stopped without settling it';
    DECLARE v_reason_parked VARCHAR(255) CHARACTER SET utf8mb4 DEFAULT 'parked: an earlier message of its key is dead';
    DECLARE v_last BIGINT;
    DECLARE v_seen INT;
    DECLARE v_keyed INT;
    DECLARE v_found LONGTEXT CHARACTER SET utf8mb4;
    DECLARE v_ids LONGTEXT CHARACTER SET utf8mb4;
    DECLARE v_overdue INT DEFAULT 0;
    DECLARE v_expired INT DEFAULT 0;
    DECLARE v_lost INT DEFAULT 0;
    DECLARE v_parked INT DEFAULT 0;
    DECLARE v_parked_waiting INT DEFAULT 0;
    DECLARE v_released INT DEFAULT 0;
    DECLARE v_lowest BIGINT;
    SET SESSION group_concat_max_len = GREATEST(@@SESSION.group_concat_max_len, 1048576);
    SELECT MAX(w.`id`), COUNT(*), COALESCE(SUM(w.`is_keyed`), 0) INTO v_last, v_seen, v_keyed
    FROM (
        SELECT `id`, `message_key` IS NOT NULL AS `is_keyed` FROM `pillarbox_outbox`
        WHERE `id` > COALESCE(p_after, 0) ORDER BY `id` LIMIT p_window
    ) AS w;
    IF v_keyed > 0 THEN
        SELECT JSON_ARRAYAGG(l.`id`) INTO v_found
        FROM `pillarbox_outbox` AS l
        WHERE l.`id` > COALESCE(p_after, 0) AND l.`id` <= v_last AND l.`message_key` IS NOT NULL
            AND (SELECT p.`id` FROM `pillarbox_outbox_lane` AS p WHERE p.`id` = l.`id`) IS NULL;
        IF v_found IS NOT NULL THEN
            SELECT JSON_ARRAYAGG(w.`id`) INTO v_ids
            FROM (
                SELECT l.`id` FROM JSON_TABLE(v_found, '$[*]' COLUMNS (`id` BIGINT PATH '$')) AS j
                STRAIGHT_JOIN `pillarbox_outbox` AS l FORCE INDEX (PRIMARY) ON l.`id` = j.`id`
                LIMIT 1000000 FOR UPDATE SKIP LOCKED
            ) AS w;
            INSERT INTO `pillarbox_outbox_lane` (`id`, `message_key`, `place`)
            SELECT l.`id`, l.`message_key`, 'live'
            FROM JSON_TABLE(COALESCE(v_ids, '[]'), '$[*]' COLUMNS (`id` BIGINT PATH '$')) AS j
            STRAIGHT_JOIN `pillarbox_outbox` AS l FORCE INDEX (PRIMARY) ON l.`id` = j.`id`
            ON DUPLICATE KEY UPDATE `message_key` = VALUES(`message_key`), `place` = VALUES(`place`), `is_clear` = FALSE;
        END IF;
    END IF;
    -- First: what is buried below parks nothing before the next look.
    IF p_park AND p_after IS NULL THEN
        SELECT JSON_ARRAYAGG(w.`id`), COUNT(*) INTO v_ids, v_parked_waiting
        FROM (
            SELECT s.`id` FROM `pillarbox_outbox_shelf` AS s
            WHERE s.`state` = 'pending' AND s.`wake_at` <= v_now AND s.`due_at` <= v_now
                AND (s.`expires_at` IS NULL OR s.`expires_at` > v_now) AND s.`message_key` IS NOT NULL AND (
                    SELECT n.`id` FROM `pillarbox_outbox_lane` AS n FORCE INDEX (`lane`)
                    STRAIGHT_JOIN `pillarbox_outbox_shelf` AS d FORCE INDEX (PRIMARY) ON d.`id` = n.`id`
                    WHERE n.`message_key` = s.`message_key` AND n.`place` = 'dead' AND d.`state` = 'dead'
                    ORDER BY n.`id` LIMIT 1
                ) < s.`id`
            ORDER BY s.`wake_at`, s.`settled_at`, s.`id` LIMIT p_window FOR UPDATE SKIP LOCKED
        ) AS w;
        IF v_parked_waiting > 0 THEN
            UPDATE JSON_TABLE(v_ids, '$[*]' COLUMNS (`id` BIGINT PATH '$')) AS j
            STRAIGHT_JOIN `pillarbox_outbox_shelf` AS s FORCE INDEX (PRIMARY) ON s.`id` = j.`id`
            SET s.`state` = 'dead', s.`wake_at` = NULL, s.`settled_at` = v_now, s.`settled_by` = NULL,
                s.`last_error` = v_reason_parked;
            INSERT INTO `pillarbox_outbox_lane` (`id`, `message_key`, `place`)
            SELECT s.`id`, s.`message_key`, 'dead'
            FROM JSON_TABLE(v_ids, '$[*]' COLUMNS (`id` BIGINT PATH '$')) AS j
            STRAIGHT_JOIN `pillarbox_outbox_shelf` AS s FORCE INDEX (PRIMARY) ON s.`id` = j.`id`
            ON DUPLICATE KEY UPDATE `message_key` = VALUES(`message_key`), `place` = VALUES(`place`), `is_clear` = FALSE;
        END IF;
    END IF;
    SELECT JSON_ARRAYAGG(l.`id`) INTO v_found
    FROM `pillarbox_outbox` AS l
    WHERE l.`id` > COALESCE(p_after, 0) AND l.`id` <= v_last AND (l.`owner_token` IS NULL OR l.`locked_until` <= v_now)
        AND (l.`owner_token` IS NOT NULL OR l.`expires_at` <= v_now OR l.`due_at` > v_now
            OR (p_park AND l.`message_key` IS NOT NULL AND (
                SELECT n.`id` FROM `pillarbox_outbox_lane` AS n FORCE INDEX (`lane`)
                STRAIGHT_JOIN `pillarbox_outbox_shelf` AS d FORCE INDEX (PRIMARY) ON d.`id` = n.`id`
                WHERE n.`message_key` = l.`message_key` AND n.`place` = 'dead' AND d.`state` = 'dead'
                ORDER BY n.`id` LIMIT 1
            ) < l.`id`));
    IF v_found IS NOT NULL THEN
        SELECT JSON_ARRAYAGG(JSON_ARRAY(w.`id`, w.`fate`)), COALESCE(SUM(w.`fate` = 'expired'), 0),
            COALESCE(SUM(w.`fate` = 'lost'), 0), COALESCE(SUM(w.`fate` = 'parked'), 0),
            COALESCE(SUM(w.`fate` = 'released'), 0), MIN(IF(w.`fate` = 'released', w.`id`, NULL))
        INTO v_ids, v_expired, v_lost, v_parked, v_released, v_lowest
        FROM (
            SELECT l.`id`,
                CASE
                    WHEN l.`expires_at` <= v_now THEN 'expired'
                    WHEN l.`owner_token` IS NOT NULL AND l.`lost_lease_count` >= p_lost_leases_max THEN 'lost'
                    WHEN (p_park AND l.`message_key` IS NOT NULL AND (
                        SELECT n.`id` FROM `pillarbox_outbox_lane` AS n FORCE INDEX (`lane`)
                        STRAIGHT_JOIN `pillarbox_outbox_shelf` AS d FORCE INDEX (PRIMARY) ON d.`id` = n.`id`
                        WHERE n.`message_key` = l.`message_key` AND n.`place` = 'dead' AND d.`state` = 'dead'
                        ORDER BY n.`id` LIMIT 1
                    ) < l.`id`) THEN 'parked'
                    WHEN l.`owner_token` IS NOT NULL THEN 'released'
                    WHEN l.`due_at` > v_now THEN 'waiting'
                    ELSE 'free'
                END AS `fate`
            FROM JSON_TABLE(v_found, '$[*]' COLUMNS (`id` BIGINT PATH '$')) AS j
            STRAIGHT_JOIN `pillarbox_outbox` AS l FORCE INDEX (PRIMARY) ON l.`id` = j.`id`
            WHERE l.`owner_token` IS NULL OR l.`locked_until` <= v_now
            LIMIT 1000000 FOR UPDATE SKIP LOCKED
        ) AS w;
        INSERT INTO `pillarbox_outbox_shelf`
        (`id`, `message_id`, `topic`, `payload`, `created_at`, `due_at`, `expires_at`, `attempts`,
        `lost_lease_count`, `priority`, `message_type`, `aggregate_type`, `aggregate_id`, `tenant_id`,
        `message_key`, `key_hash`, `correlation_id`, `causation_id`, `content_type`, `headers`, `occurred_at`, `last_error`,
        `state`, `wake_at`, `settled_at`, `settled_by`, `is_receipt`)
        SELECT
        l.`id`, l.`message_id`, l.`topic`, l.`payload`, l.`created_at`, l.`due_at`, l.`expires_at`, l.`attempts`,
        l.`lost_lease_count`, l.`priority`, l.`message_type`, l.`aggregate_type`, l.`aggregate_id`, l.`tenant_id`,
        l.`message_key`, l.`key_hash`, l.`correlation_id`, l.`causation_id`, l.`content_type`, l.`headers`, l.`occurred_at`,
        l.`last_error`, 'pending', LEAST(l.`due_at`, COALESCE(l.`expires_at`, v_never)), NULL, NULL, FALSE
        FROM JSON_TABLE(v_ids, '$[*]' COLUMNS (
            `id` BIGINT PATH '$[0]', `fate` VARCHAR(8) CHARACTER SET utf8mb4 PATH '$[1]')) AS j
        STRAIGHT_JOIN `pillarbox_outbox` AS l FORCE INDEX (PRIMARY) ON l.`id` = j.`id`
        WHERE j.`fate` = 'waiting'
        ON DUPLICATE KEY UPDATE `pillarbox_outbox_shelf`.`id` = `pillarbox_outbox_shelf`.`id`;
        INSERT INTO `pillarbox_outbox_shelf`
        (`id`, `message_id`, `topic`, `payload`, `created_at`, `due_at`, `expires_at`, `attempts`,
        `lost_lease_count`, `priority`, `message_type`, `aggregate_type`, `aggregate_id`, `tenant_id`,
        `message_key`, `key_hash`, `correlation_id`, `causation_id`, `content_type`, `headers`, `occurred_at`, `last_error`,
        `state`, `wake_at`, `settled_at`, `settled_by`, `is_receipt`)
        SELECT
        l.`id`, l.`message_id`, l.`topic`, l.`payload`, l.`created_at`, l.`due_at`, l.`expires_at`, l.`attempts`,
        LEAST(l.`lost_lease_count`, 2147483646) + (l.`owner_token` IS NOT NULL), l.`priority`, l.`message_type`,
        l.`aggregate_type`, l.`aggregate_id`, l.`tenant_id`, l.`message_key`, l.`key_hash`, l.`correlation_id`, l.`causation_id`,
        l.`content_type`, l.`headers`, l.`occurred_at`,
        CASE j.`fate` WHEN 'expired' THEN v_reason_expired WHEN 'lost' THEN v_reason_lost ELSE v_reason_parked END,
        'dead', NULL, v_now, NULL, FALSE
        FROM JSON_TABLE(v_ids, '$[*]' COLUMNS (
            `id` BIGINT PATH '$[0]', `fate` VARCHAR(8) CHARACTER SET utf8mb4 PATH '$[1]')) AS j
        STRAIGHT_JOIN `pillarbox_outbox` AS l FORCE INDEX (PRIMARY) ON l.`id` = j.`id`
        WHERE j.`fate` IN ('expired', 'lost', 'parked')
        ON DUPLICATE KEY UPDATE `pillarbox_outbox_shelf`.`id` = `pillarbox_outbox_shelf`.`id`;
        INSERT INTO `pillarbox_outbox_lane` (`id`, `message_key`, `place`)
        SELECT l.`id`, l.`message_key`, IF(j.`fate` = 'waiting', 'waiting', 'dead')
        FROM JSON_TABLE(v_ids, '$[*]' COLUMNS (
            `id` BIGINT PATH '$[0]', `fate` VARCHAR(8) CHARACTER SET utf8mb4 PATH '$[1]')) AS j
        STRAIGHT_JOIN `pillarbox_outbox` AS l FORCE INDEX (PRIMARY) ON l.`id` = j.`id`
        STRAIGHT_JOIN `pillarbox_outbox_shelf` AS s FORCE INDEX (PRIMARY)
            ON s.`id` = IF(l.`message_key` IS NULL, NULL, l.`id`)
        WHERE j.`fate` NOT IN ('released', 'free')
        ON DUPLICATE KEY UPDATE `message_key` = VALUES(`message_key`), `place` = VALUES(`place`), `is_clear` = FALSE;
        DELETE l, n
        FROM JSON_TABLE(v_ids, '$[*]' COLUMNS (
            `id` BIGINT PATH '$[0]', `fate` VARCHAR(8) CHARACTER SET utf8mb4 PATH '$[1]')) AS j
        STRAIGHT_JOIN `pillarbox_outbox` AS l FORCE INDEX (PRIMARY) ON l.`id` = j.`id`
        LEFT JOIN `pillarbox_outbox_lane` AS n FORCE INDEX (PRIMARY)
            ON n.`id` = IF(l.`message_key` IS NULL, NULL, l.`id`) AND n.`place` = 'live'
        WHERE j.`fate` NOT IN ('released', 'free');
        UPDATE JSON_TABLE(v_ids, '$[*]' COLUMNS (
            `id` BIGINT PATH '$[0]', `fate` VARCHAR(8) CHARACTER SET utf8mb4 PATH '$[1]')) AS j
        STRAIGHT_JOIN `pillarbox_outbox` AS l FORCE INDEX (PRIMARY) ON l.`id` = j.`id`
        SET l.`lost_lease_count` = LEAST(l.`lost_lease_count`, 2147483646) + 1,
            l.`owner_token` = NULL, l.`locked_until` = NULL, l.`fence` = -1
        WHERE j.`fate` = 'released';
    END IF;
    -- Last: what is buried here parks nothing before the next look.
    IF p_after IS NULL THEN
        SELECT JSON_ARRAYAGG(w.`id`), COUNT(*) INTO v_ids, v_overdue
        FROM (
            SELECT `id` FROM `pillarbox_outbox_shelf`
            WHERE `state` = 'pending' AND `wake_at` <= v_now AND `expires_at` <= v_now
            ORDER BY `wake_at`, `settled_at`, `id` LIMIT p_window FOR UPDATE SKIP LOCKED
        ) AS w;
        IF v_overdue > 0 THEN
            UPDATE JSON_TABLE(v_ids, '$[*]' COLUMNS (`id` BIGINT PATH '$')) AS j
            STRAIGHT_JOIN `pillarbox_outbox_shelf` AS s FORCE INDEX (PRIMARY) ON s.`id` = j.`id`
            SET s.`state` = 'dead', s.`wake_at` = NULL, s.`settled_at` = v_now, s.`settled_by` = NULL,
                s.`last_error` = v_reason_expired;
            INSERT INTO `pillarbox_outbox_lane` (`id`, `message_key`, `place`)
            SELECT s.`id`, s.`message_key`, 'dead'
            FROM JSON_TABLE(v_ids, '$[*]' COLUMNS (`id` BIGINT PATH '$')) AS j
            STRAIGHT_JOIN `pillarbox_outbox_shelf` AS s FORCE INDEX (PRIMARY) ON s.`id` = j.`id`
            WHERE s.`message_key` IS NOT NULL
            ON DUPLICATE KEY UPDATE `message_key` = VALUES(`message_key`), `place` = VALUES(`place`), `is_clear` = FALSE;
        END IF;
    END IF;
    SELECT v_released AS `released`, v_lost AS `lost`, v_expired + v_overdue AS `expired`,
        IF(v_seen = p_window, v_last, NULL) AS `next`, v_lowest AS `lowest_released`,
        v_parked + v_parked_waiting AS `parked`;
END$$
DELIMITER ;

-- Which partition a key belongs to: FNV-1a of its bytes, folded to 32 bits, as the library counts it. The 64 bits come in two
-- halves, because their product would overflow; the prime is 2^40 + 435. A procedure, because servers that keep a binary log
-- let only administrators create functions.
DROP PROCEDURE IF EXISTS `pillarbox_outbox_key_hash`;
DELIMITER $$
CREATE PROCEDURE `pillarbox_outbox_key_hash`(p_key LONGTEXT CHARACTER SET utf8mb4, OUT p_hash BIGINT)
    SQL SECURITY INVOKER
BEGIN
    DECLARE v_bytes LONGBLOB DEFAULT CAST(p_key AS BINARY);
    DECLARE v_place INT DEFAULT 1;
    DECLARE v_high BIGINT UNSIGNED DEFAULT 3421674724;
    DECLARE v_low BIGINT UNSIGNED DEFAULT 2216829733;
    WHILE v_place <= LENGTH(v_bytes) DO
        SET v_low = v_low ^ ASCII(SUBSTR(v_bytes, v_place, 1));
        SET v_high = (v_high * 435 + (v_low << 8) + (v_low * 435 >> 32)) & 4294967295;
        SET v_low = v_low * 435 & 4294967295;
        SET v_place = v_place + 1;
    END WHILE;
    SET p_hash = IF(p_key IS NULL, NULL, v_high ^ v_low);
END$$
DELIMITER ;

-- For other languages: stores a message in the caller's open transaction. `p_options` is a JSON object of what a message may
-- have besides topic, payload and key: message_id (as text), message_type, aggregate_type, aggregate_id, tenant_id,
-- correlation_id, causation_id, content_type, headers (an object), priority, delay_seconds, expires_in_seconds.
-- Answers one row, or none when the message is known already. What the library would refuse is refused in its words: the
-- field and the limit, never the value.
DROP PROCEDURE IF EXISTS `pillarbox_outbox_enqueue`;
DELIMITER $$
CREATE PROCEDURE `pillarbox_outbox_enqueue`(
    p_topic LONGTEXT CHARACTER SET utf8mb4, p_payload LONGBLOB, p_key LONGTEXT CHARACTER SET utf8mb4,
    p_options LONGTEXT CHARACTER SET utf8mb4)
    SQL SECURITY INVOKER
BEGIN
    DECLARE v_horizon DECIMAL(20, 6) DEFAULT 316224000;
    DECLARE v_options LONGTEXT CHARACTER SET utf8mb4 DEFAULT COALESCE(p_options, '{}');
    DECLARE v_complaint VARCHAR(128) CHARACTER SET utf8mb4;
    DECLARE v_id, v_type, v_aggregate_type, v_aggregate_id, v_tenant, v_correlation, v_causation, v_content_type, v_headers
        LONGTEXT CHARACTER SET utf8mb4;
    DECLARE v_values LONGTEXT CHARACTER SET utf8mb4;
    DECLARE v_priority, v_delay, v_expires DECIMAL(40, 6);
    DECLARE v_key LONGTEXT CHARACTER SET utf8mb4 DEFAULT NULLIF(p_key, '');
    DECLARE v_hash BIGINT;
    IF NOT JSON_VALID(v_options) THEN
        SET v_complaint = 'options must be JSON', v_options = '{}';
    ELSEIF JSON_TYPE(v_options) <> 'OBJECT' THEN
        SET v_complaint = 'options must be a JSON object', v_options = '{}';
    END IF;
    -- Names that nobody knows are mistakes, and so are values of another kind than their column's.
    SELECT CASE
        WHEN k.`kind` IS NULL THEN CONCAT('options must not have the name ', LEFT(JSON_QUOTE(o.`name`), 80))
        WHEN k.`kind` = 'NUMBER' THEN CONCAT(o.`name`, ' must be a number')
        WHEN k.`kind` = 'OBJECT' THEN CONCAT(o.`name`, ' must be a JSON object')
        ELSE CONCAT(o.`name`, ' must be text')
    END INTO v_complaint
    FROM JSON_TABLE(JSON_KEYS(v_options), '$[*]' COLUMNS (`name` VARCHAR(255) CHARACTER SET utf8mb4 PATH '$')) AS o
    LEFT JOIN JSON_TABLE('[
            ["message_id", "STRING"], ["message_type", "STRING"], ["aggregate_type", "STRING"],
            ["aggregate_id", "STRING"], ["tenant_id", "STRING"], ["correlation_id", "STRING"],
            ["causation_id", "STRING"], ["content_type", "STRING"], ["headers", "OBJECT"], ["priority", "NUMBER"],
            ["delay_seconds", "NUMBER"], ["expires_in_seconds", "NUMBER"]]',
        '$[*]' COLUMNS (
            `name` VARCHAR(255) CHARACTER SET utf8mb4 PATH '$[0]', `kind` VARCHAR(8) CHARACTER SET utf8mb4 PATH '$[1]')) AS k
        ON k.`name` = o.`name`
    WHERE k.`kind` IS NULL OR JSON_TYPE(JSON_EXTRACT(v_options, CONCAT('$.', k.`name`))) NOT IN (
        'NULL', k.`kind`, IF(k.`kind` = 'NUMBER', 'INTEGER', ''), IF(k.`kind` = 'NUMBER', 'DOUBLE', ''),
        IF(k.`kind` = 'NUMBER', 'DECIMAL', ''), IF(k.`kind` = 'NUMBER', 'UNSIGNED INTEGER', ''))
    LIMIT 1;
    IF v_complaint IS NOT NULL THEN
        SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 30002, MESSAGE_TEXT = v_complaint;
    END IF;
    SELECT o.* INTO v_id, v_type, v_aggregate_type, v_aggregate_id, v_tenant, v_correlation, v_causation, v_content_type,
        v_priority, v_delay, v_expires
    FROM JSON_TABLE(v_options, '$' COLUMNS (
        `a` LONGTEXT CHARACTER SET utf8mb4 PATH '$.message_id', `b` LONGTEXT CHARACTER SET utf8mb4 PATH '$.message_type',
        `c` LONGTEXT CHARACTER SET utf8mb4 PATH '$.aggregate_type', `d` LONGTEXT CHARACTER SET utf8mb4 PATH '$.aggregate_id',
        `e` LONGTEXT CHARACTER SET utf8mb4 PATH '$.tenant_id', `f` LONGTEXT CHARACTER SET utf8mb4 PATH '$.correlation_id',
        `g` LONGTEXT CHARACTER SET utf8mb4 PATH '$.causation_id', `h` LONGTEXT CHARACTER SET utf8mb4 PATH '$.content_type',
        `i` DECIMAL(40, 6) PATH '$.priority', `j` DECIMAL(40, 6) PATH '$.delay_seconds',
        `k` DECIMAL(40, 6) PATH '$.expires_in_seconds')) AS o;
    SET v_headers = JSON_EXTRACT(v_options, '$.headers');
    IF JSON_TYPE(v_headers) = 'OBJECT' AND JSON_LENGTH(v_headers) > 0 THEN
        SET v_values = JSON_EXTRACT(v_headers, '$.*');
        SELECT CASE
            WHEN SUM(JSON_TYPE(h.`value`) NOT IN
                    ('STRING', 'INTEGER', 'DOUBLE', 'DECIMAL', 'UNSIGNED INTEGER', 'BOOLEAN')) > 0
                THEN 'headers must not have a value that is not text, number or truth value'
            WHEN SUM(LENGTH(h.`name`) + LENGTH(JSON_UNQUOTE(h.`value`))) > 65536
                THEN CONCAT('headers must have at most 65536 bytes, has ',
                    SUM(LENGTH(h.`name`) + LENGTH(JSON_UNQUOTE(h.`value`))))
            WHEN SUM(h.`name` = '') > 0 THEN 'headers must not have an empty name'
        END INTO v_complaint
        FROM (
            SELECT n.`name`, JSON_EXTRACT(v_values, CONCAT('$[', n.`place` - 1, ']')) AS `value`
            FROM JSON_TABLE(JSON_KEYS(v_headers), '$[*]' COLUMNS (
                `place` FOR ORDINALITY, `name` LONGTEXT CHARACTER SET utf8mb4 PATH '$')) AS n
        ) AS h;
    ELSE
        SET v_headers = NULL;
    END IF;
    SET v_complaint = COALESCE(v_complaint, CASE
        WHEN COALESCE(p_topic, '') = '' THEN 'topic must not be empty'
        WHEN p_payload IS NULL THEN 'payload must not be null'
        WHEN LENGTH(p_payload) > 1048576 THEN CONCAT('payload must have at most 1048576 bytes, has ', LENGTH(p_payload))
        WHEN v_id IS NOT NULL AND (
            v_id NOT RLIKE '^[0-9a-fA-F]{8}-?([0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}$' OR v_id NOT RLIKE '[1-9a-fA-F]')
            THEN 'message_id must be a UUID'
        WHEN v_delay > v_horizon THEN 'delay_seconds must lie within 316224000 seconds'
        WHEN v_expires > v_horizon THEN 'expires_in_seconds must lie within 316224000 seconds'
        WHEN v_expires <= GREATEST(COALESCE(v_delay, 0), 0) THEN 'expires_in_seconds must lie after the due time'
        WHEN v_priority NOT BETWEEN -32768 AND 32767 THEN 'priority must be -32768 to 32767'
    END, (
        SELECT IF(CHAR_LENGTH(t.`value`) > 255,
            CONCAT(t.`name`, ' must have at most 255 characters, has ', CHAR_LENGTH(t.`value`)),
            CONCAT(t.`name`, ' must not contain the character NUL'))
        FROM (
            SELECT 'topic' AS `name`, p_topic AS `value` UNION ALL SELECT 'key', v_key
            UNION ALL SELECT 'message_type', v_type UNION ALL SELECT 'aggregate_type', v_aggregate_type
            UNION ALL SELECT 'aggregate_id', v_aggregate_id UNION ALL SELECT 'tenant_id', v_tenant
            UNION ALL SELECT 'correlation_id', v_correlation UNION ALL SELECT 'causation_id', v_causation
            UNION ALL SELECT 'content_type', v_content_type
        ) AS t
        WHERE CHAR_LENGTH(t.`value`) > 255 OR LOCATE(CHAR(0), t.`value`) > 0
        LIMIT 1));
    IF v_complaint IS NOT NULL THEN
        SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 30002, MESSAGE_TEXT = v_complaint;
    END IF;
    CALL `pillarbox_outbox_key_hash`(v_key, v_hash);
    CALL `pillarbox_outbox_enqueue_one`(
        UNHEX(REPLACE(COALESCE(v_id, UUID()), '-', '')), p_topic, p_payload, NULLIF(v_type, ''),
        NULLIF(v_aggregate_type, ''), NULLIF(v_aggregate_id, ''), NULLIF(v_tenant, ''), v_key, NULLIF(v_correlation, ''),
        NULLIF(v_causation, ''), COALESCE(NULLIF(v_content_type, ''), 'application/json'), v_headers, NULL, NULL,
        ROUND(NULLIF(v_delay, 0) * 1000000), NULL, ROUND(v_expires * 1000000), COALESCE(v_priority, 0), v_hash, NULL,
        1 + FLOOR(RAND() * 9007199254740991), NULL);
END$$
DELIMITER ;

-- For other languages: leases up to `p_limit` messages to the owner. Keep `fence` of each row: settling needs it. Messages that came
-- by a plain INSERT with a key get their place by the first of two claims, and are taken by the second.
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
        SET @pillarbox_outbox_left = 0;
        START TRANSACTION;
        CALL `pillarbox_outbox_claim_rows`(
            p_owner, 1 + FLOOR(RAND() * 9007199254740991), p_lease_seconds * 1000000, p_limit, 0, 5, 1, NULL, NULL);
        COMMIT;
        IF @pillarbox_outbox_left > 0 THEN
            SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
            START TRANSACTION;
            CALL `pillarbox_outbox_claim_rows`(
                p_owner, 1 + FLOOR(RAND() * 9007199254740991), p_lease_seconds * 1000000, @pillarbox_outbox_left, 0, 5, 1,
                NULL, NULL);
            COMMIT;
        END IF;
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
        CALL `pillarbox_outbox_reap_rows`(p_after, p_window, 5, FALSE);
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
    p_fence BIGINT, p_lease BIGINT, p_limit INT, p_floor BIGINT, p_lost_leases_max INT, p_order INT,
    p_served MEDIUMBLOB, p_left_out MEDIUMBLOB)
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
        CALL `pillarbox_outbox_claim_rows`(
            p_owner, p_fence, p_lease, p_limit, p_floor, p_lost_leases_max, p_order, p_served, p_left_out);
        COMMIT;
    END;
END$$
DELIMITER ;
