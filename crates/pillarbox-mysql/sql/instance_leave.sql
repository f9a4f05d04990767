-- An instance leaves: nobody need wait until it has been silent for too long.
DELETE FROM `pillarbox_outbox_instance` WHERE `id` = ?
