-- Takes back the places of delayed messages that were on the shelf already, as other rows.
DELETE n FROM `pillarbox_outbox_lane` AS n FORCE INDEX (PRIMARY) WHERE n.`id` IN (0 /*ids*/)
