-- Only what is dead.
DELETE s FROM `pillarbox_outbox_shelf` AS s FORCE INDEX (PRIMARY) WHERE s.`id` IN (0 /*ids*/) AND s.`state` = 'dead'
