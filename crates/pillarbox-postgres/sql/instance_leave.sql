-- An instance leaves: nobody need wait until it has been silent for too long.
DELETE FROM pillarbox.outbox_instance WHERE id = $1 RETURNING 1
