-- Acknowledged rows of a stretch, from ?1 to ?2: all of them or none, as outbox_settle_remove_stretch.sql. The guard is their lease, which the
-- caller has found: as long as it stands, none of them has another.
DELETE FROM pillarbox_outbox
 WHERE id BETWEEN ?1 AND ?2 AND (SELECT count(*) FROM pillarbox_outbox WHERE id BETWEEN ?1 AND ?2) = ?2 - ?1 + 1;
