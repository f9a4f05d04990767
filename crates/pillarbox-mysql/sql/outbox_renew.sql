-- Follows the locking read of outbox_settle.sql, which answers what is still ours.
UPDATE `pillarbox_outbox` AS l FORCE INDEX (PRIMARY)
SET l.`locked_until` = UTC_TIMESTAMP(6) + INTERVAL 0 /*lease*/ MICROSECOND
WHERE l.`id` IN (0 /*ids*/) AND l.`owner_token` = x'00000000000000000000000000000000' /*owner*/ AND (0 /*fences*/)
