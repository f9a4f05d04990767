-- Takes back new rows: their messages are on the shelf already.
DELETE l FROM `pillarbox_outbox` AS l FORCE INDEX (PRIMARY) WHERE l.`id` IN (0 /*ids*/)
