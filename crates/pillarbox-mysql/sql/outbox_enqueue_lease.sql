-- Messages of a batch that had a due or expiry time to be compared first, and are born leased all the same.
UPDATE `pillarbox_outbox` FORCE INDEX (PRIMARY)
SET `owner_token` = x'00000000000000000000000000000000' /*owner*/, `attempts` = 1,
    `locked_until` = UTC_TIMESTAMP(6) + INTERVAL 0 /*lease*/ MICROSECOND
WHERE `id` IN (0 /*ids*/)
