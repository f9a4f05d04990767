-- Acknowledged and not kept, or kept by the statement before.
DELETE l FROM `pillarbox_outbox` AS l FORCE INDEX (PRIMARY)
WHERE l.`id` IN (0 /*ids*/) AND l.`owner_token` = x'00000000000000000000000000000000' /*owner*/ AND (0 /*fences*/)
