-- The same for a whole call that fits into one list: nobody needs five hundred rows to hear that all are there. Answers NULL then, and
-- otherwise which are.
/*M!100600 SET STATEMENT group_concat_max_len = 4194304 FOR */
SELECT IF(COUNT(*) = 0 /*count*/, NULL, COALESCE(JSON_ARRAYAGG(`id`), '[]')) AS `look`
FROM `pillarbox_outbox` FORCE INDEX (PRIMARY)
WHERE `id` IN (0 /*ids*/) AND `owner_token` = x'00000000000000000000000000000000' /*owner*/ AND (0 /*fences*/)
FOR UPDATE
